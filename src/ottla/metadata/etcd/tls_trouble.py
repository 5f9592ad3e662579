"""Says in words of the options why there is no TLS connection to etcd: from what grpcio says.

Pure. What grpcio says of it is of BoringSSL, and names no file. From TLS 1.3 on a server refuses
its client's certificate behind the handshake, by an alert that grpcio does not pass on.
"""

_OWN_FILES = "ottla.etcd.certificate.file and ottla.etcd.key.file"
_TROUBLE = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not valid yet"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not signed by whom ottla.etcd.ca.file names (without it: this system)",
    ),
    ("Hostname Verification", "its certificate is for other names than this address"),
    (
        "security handshaker",
        f"ottla.etcd.ca.file has no certificate (PEM), or {_OWN_FILES} do not belong together",
    ),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS there: etcd:// instead of etcds://"),
    (
        "Unwrap failed",
        f"it wants a certificate ({_OWN_FILES}) by its --trusted-ca-file that has not expired",
    ),
)
"""What to look for in what grpcio says, and what that means. The first that fits counts."""


def trouble_of(details: str) -> str:
    """Return what an error of grpcio means, or what it says behind where it has been."""
    known = next((means for sign, means in _TROUBLE if sign in details), None)
    return details.rpartition("last error: ")[2] if known is None else known
