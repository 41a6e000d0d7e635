"""Requests to OpenAI-compatible servers: one mechanism for judges and for generators.

Without torch. The client with its retries, what a key may look like in a reply, caps, the journal
that knows of a request before it leaves.
"""
