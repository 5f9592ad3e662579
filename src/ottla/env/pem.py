"""PEM texts: the certificates in them, without the words that tools put between.

Owns no file and no use of ``ssl``. Source: RFC 7468.
"""

from binascii import Error, a2b_base64

CERTIFICATE_MARK = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


def certificates_of(text: str) -> str:
    """Return the certificates alone: the library refuses other words, and takes ASCII only.

    A certificate that is cut off, or has letters that none has, is returned as one that the library
    refuses.
    """
    parts = text.split(CERTIFICATE_MARK)[1:]
    found = "\n".join(f"{CERTIFICATE_MARK}{part.partition(_END)[0]}{_END}" for part in parts)
    return found.encode("ascii", "replace").decode()


def first_certificate_of(text: str) -> bytes | None:
    """Return the first certificate as DER; None: there is none, or it is not readable."""
    _, _, after = text.partition(CERTIFICATE_MARK)
    body, end, _ = after.partition(_END)
    try:
        return a2b_base64(body.encode("ascii", "replace")) if end else None
    except Error:
        return None
