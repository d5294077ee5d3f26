"""What a secure connection that fails means, as an error for each cause that says what to do."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from vlmtui.errors import ErrorKind, VlmtuiError

_SETTING = "in config.toml: [engines.NAME]"
CLIENT_CERTIFICATE = f'Name a certificate and key that it accepts {_SETTING} client_cert = "FILE".'
_CA = f'If it is your own, name the certificate that signed it {_SETTING} ca = "FILE".'
_CLOCK = "Have it renewed on the server; is this machine's clock right?"
_HOST = "Give the address by the name that the certificate is made for."
_PLAIN = "Is it http:// instead?"
_CLOSED_HINT = f"Some servers refuse a client without a certificate like that. {CLIENT_CERTIFICATE}"

_CERTIFICATES = {
    9: ("The certificate of {} is not valid yet.", _CLOCK),
    10: ("The certificate of {} has expired.", _CLOCK),
    18: ("The certificate of {} is signed by itself, so nothing vouches for it.", _CA),
    19: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    20: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    21: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    62: ("The certificate of {} is made for another host.", _HOST),
    64: ("The certificate of {} is made for another host.", _HOST),
}
"""By OpenSSL's number of the reason (`X509_V_ERR_…`)."""
_REASONS = (
    ("CERTIFICATE_REQUIRED", "{} asks for a certificate of its clients.", CLIENT_CERTIFICATE),
    ("ALERT_UNKNOWN_CA", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_BAD_CERTIFICATE", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_CERTIFICATE", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_ACCESS_DENIED", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("HANDSHAKE_FAILURE", "{} refused the secure connection.", _CLOSED_HINT),
    ("WRONG_VERSION_NUMBER", "{} does not speak TLS.", _PLAIN),
    ("RECORD_LAYER_FAILURE", "{} does not speak TLS.", _PLAIN),
    ("HTTP_REQUEST", "{} does not speak TLS.", _PLAIN),
)
"""By what OpenSSL's reason has in it; an alert is what the server said."""


def secure_connection_failed(error: Exception, *, shown: str) -> VlmtuiError | None:
    """Return what it means; None where the connection failed for another reason."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            message, hint = _meaning(cause)
            detail = f"{type(cause).__name__}: {cause}"
            return VlmtuiError(ErrorKind.NO_NETWORK, message.format(shown), detail=detail, hint=hint)
    return None


def closed_without_a_word(shown: str, detail: str) -> VlmtuiError:
    """Return the error for a secure connection that the server closed before it answered anything."""
    message = f"{shown} closed the secure connection without an answer."
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=_CLOSED_HINT)


def _meaning(error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _CERTIFICATES:
        return _CERTIFICATES[error.verify_code]
    if isinstance(error, ssl.SSLCertVerificationError):
        return "The certificate of {} is not valid.", _CA
    if isinstance(error, ssl.SSLEOFError):
        return "{} closed the secure connection while it was being made.", _CLOSED_HINT
    for word, message, hint in _REASONS:
        if word in (error.reason or ""):
            return message, hint
    return "The secure connection to {} failed.", f"{_CA} {_PLAIN}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
