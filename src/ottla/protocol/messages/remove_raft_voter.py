"""RemoveRaftVoter, API key 81: removes a voter from the metadata quorum (KIP-853)."""

from ottla.ids import TopicId
from ottla.protocol.schema import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: TopicId = uuid()


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
