"""Penstock beside Apache Kafka: the same work, on the same machine, in the same run (`python -m bench`)."""
