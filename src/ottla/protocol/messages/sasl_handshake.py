"""SaslHandshake, API key 17: chooses the SASL mechanism. Never flexible.

After v0 the mechanism's tokens follow without Kafka's framing; after v1 they travel in
SaslAuthenticate.
"""

from ottla.protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16(default=0)
    mechanisms: list[str] = array(string)
