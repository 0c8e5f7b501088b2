"""Who are you: the mechanisms of SASL that Kafka's protocol carries, as pure machines of bytes in and bytes out.

One file per mechanism, with the client's side of it; `exchange` has the shape that they share.
"""
