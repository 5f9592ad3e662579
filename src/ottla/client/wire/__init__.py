"""What a client says and understands: requests, answers, decisions. No input or output.

``asyncio`` and ``blocking`` share it.
"""
