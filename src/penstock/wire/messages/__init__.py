"""Every message of the protocol we speak, one file for each API, and the records of Kafka's internal topics."""
