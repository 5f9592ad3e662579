"""AlterUserScramCredentials, API key 51: sets and removes SCRAM credentials (KIP-554)."""

from ottla.protocol.schema import Message, Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
