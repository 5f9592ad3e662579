"""One client's connection: frames in, answers out, strictly in the order of the requests.

Owns the order, the backpressure and the time limits of a connection. ``Dispatch`` serves a frame;
``Outgoing`` sends the answers. Requests are served one after another, but consecutive Produce
requests whose appends are done may wait for their flush together (design D2), within limits of
count and bytes. A peer that does not read its answers is no longer read (reliability rows 12-14).

The work is done in rounds: move finished answers to ``Outgoing``, serve the frames that may be
served, write, settle the buffer. A round starts when bytes arrive, when the socket has room again
and when an answer is resolved. Answers that are resolved in one turn of the loop (by a group
commit) share one round and one write.
"""

from __future__ import annotations  # else each call would build those of inner functions

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import NamedTuple, cast

from ottla.answer_memory import SMALL_BYTES, AnswerMemory
from ottla.complaints import Complaints
from ottla.env.clock import Clock
from ottla.env.net import Net
from ottla.env.stall_meter import NOTED_SECONDS
from ottla.errors import CloseConnection, MalformedMessage
from ottla.ids import ANONYMOUS, Principal
from ottla.network.entrance import Dispatch, Entrance
from ottla.network.frame import LENGTH_BYTES, FrameReader, ReceiveBudget, SpeaksTls
from ottla.network.limits import Limits
from ottla.network.outgoing import Answer, Outgoing, RegionUnreadable
from ottla.network.patience import Patience
from ottla.network.unanswered import Unanswered
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.turns import RENEW_SECONDS, SLICE_SECONDS, Turns

logger = logging.getLogger(__name__)

SHARE_BYTES = 1024 * 1024
"""After receiving this much a connection lets the others receive first. Without it libuv reads a
peer that keeps its socket full up to 32 times in a row, while the others wait for seconds."""
REST_SECONDS = 5.0
"""A connection that has been silent for this long gives up its receive buffer."""


class Peer(NamedTuple):
    """The address of the client, and the one of ours that it connected to."""

    host: str
    port: int
    local_host: str
    local_port: int
    principal: Principal = ANONYMOUS
    """Before authentication. A Dispatch that authenticates its client tells handlers by itself."""


OpenDispatch = Callable[[Peer, Entrance], Dispatch]
"""Called once per connection; returns the Dispatch for its first frames, usually for all."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one accepted socket."""

    def __init__(
        self,
        *,
        limits: Limits,
        budget: ReceiveBudget,
        answers: AnswerMemory,
        clock: Clock,
        net: Net,
        open_dispatch: OpenDispatch,
        turns: Turns,
        complaints: Complaints,
        on_made: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._limits = limits
        self._reader = FrameReader(budget, limits.request_bytes_max)
        self._answers = answers
        self._clock = clock
        self._net = net
        self._open_dispatch = open_dispatch
        self._turns = turns
        self._complaints = complaints
        self._on_made = on_made
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unanswered = Unanswered(limits, complaints)
        self._waiting = self._unanswered.requests
        """Use: asked in each round, without a hop. Invariant: is ``_unanswered.requests``."""
        self._outgoing: Outgoing  # Made with the transport; asyncio calls connection_made first.
        self._is_read_paused = False
        self._is_in_round = False
        self._is_round_due = False  # A round was asked for in this turn of the loop.
        self._is_draining = False
        self._is_lost = False
        self._shared_bytes = 0  # Received since the connection last let the others go first.
        self._is_giving_way = False  # Waits for its turn, and reads nothing until then.
        self._is_over = False  # Use: this connection has used up its time in this turn.
        self._served_key = 0
        self.patience = Patience(limits, clock.monotonic())
        self._entrance = Entrance(self._reader, self.patience, clock, self)
        self.peer = Peer("", 0, "", 0)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and its addresses."""
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._outgoing = Outgoing(
            self._transport,
            self._net.file_sender(transport),
            memory=self._answers,
            buffer_bytes=self._limits.write_buffer_bytes,
        )
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer = Peer(str(peer[0]), int(peer[1]), str(local[0]), int(local[1]))
        self._entrance.ask_wire = transport.get_extra_info
        self._entrance.dispatch = self._open_dispatch(self.peer, self._entrance)
        self._on_made(self)
        if self._is_draining:  # The listener stopped between the accept and now.
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive; ``_pace_reading`` has reserved the memory."""
        writable = self._reader.writable()
        assert writable is not None, "reading goes on only while there is a buffer to read into"
        return writable

    def buffer_updated(self, nbytes: int) -> None:
        """Serve every frame that is complete now."""
        self._reader.received(nbytes)
        self._shared_bytes += nbytes
        if self._shared_bytes >= SHARE_BYTES:
            self._give_way()
        began = self.patience.last_activity = self._clock.monotonic()
        self._serve(began)

    def eof_received(self) -> bool:
        """Return True, which keeps the transport open, while a half-closed peer is owed answers.

        The peer may also have closed both ways, which shows only when we write. So a request that
        waits for more (a Fetch) is answered now, with what there is.
        """
        if self._waiting or self._outgoing.size_bytes:
            self._is_draining = True
            self._unanswered.hurry()
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything: requests that only wait are cancelled, answers to others dropped."""
        self._is_lost = True
        self._unanswered.abandon()
        self._outgoing.end()
        self._reader.release()
        self._entrance.end()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Note that the transport's buffer is full: the peer does not read its answers."""
        self._outgoing.is_paused = True

    def resume_writing(self) -> None:
        """Note that the transport has room again, and do a round."""
        self._outgoing.resume()
        self.have_turn()

    # What the listener calls.

    def drain(self) -> None:
        """Take no further request; close when the requests in flight are answered."""
        self._is_draining = True
        if self._transport is not None and not self._is_lost:
            self._close_if_drained()

    def close(self) -> None:
        """Close when what was written has been sent. No further frame is served."""
        self._is_draining = True
        self._unanswered.abandon()
        if self._transport is not None:
            self._outgoing.clear()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def mute(self, seconds: float = inf) -> Callable[[], None]:
        """Serve no frame for so long. For ever: read nothing, either, and shake no hands.

        Returns what ends it before its time, unless it is for ever by now.
        """
        self._entrance.mute(seconds)
        if seconds == inf and self._transport is not None and not self._is_read_paused:
            self._is_read_paused = True
            self._transport.pause_reading()
        return self._entrance.unmute

    def abort(self) -> None:
        """Cut the connection off at once."""
        if self._transport is not None:
            self._transport.abort()

    def enforce_limits(self, now: float) -> None:
        """Close the connection if its peer has been idle, slow or stalled for too long.

        The listener calls this in each sweep; ``now`` is the monotonic clock's, in seconds.
        """
        if self._is_lost or self._transport is None:
            return
        if self._is_read_paused and not self._waiting and not self._outgoing.is_paused:
            # Reading was paused for want of receive memory; perhaps there is some now.
            self._serve(self._clock.monotonic())
        patience, outgoing, held_bytes = self.patience, self._outgoing, self._reader.held_bytes
        unsent_bytes = outgoing.unsent_bytes
        patience.look(now, unsent_bytes, outgoing.taken_bytes)
        if unsent_bytes > SMALL_BYTES:
            outgoing.count()
        if unsent_bytes:  # Whether or not it is closing already.
            if patience.has_stalled(now):
                self._complaints.note(
                    logging.INFO, f"cutting off {self.peer.host}: it takes no answer"
                )
                self.abort()
        elif patience.frame_began is not None and not self._is_read_paused:
            if patience.sends_too_slowly(now, held_bytes):
                why = "its request takes too long to arrive"
                self._complaints.note(logging.INFO, f"closing {self.peer.host}: {why}")
                self.abort()
        elif not self._waiting and patience.is_idle(now):  # Muted or not, as in Kafka.
            logger.debug("closing idle connection of %s", self.peer.host)
            self._transport.close()
        if not held_bytes and now - patience.last_activity > REST_SECONDS:
            self._reader.release()

    def starves_with(self, now: float) -> int:
        """Return the bytes it holds if it has waited too long for receive memory; else 0.

        Many partial frames may use up all memory, so that none of them can ever be completed.
        """
        return self._reader.held_bytes if self.patience.has_starved(now) else 0

    @property
    def counted_bytes(self) -> int:
        """Bytes of its unread answers, as counted in the ``AnswerMemory``."""
        return self._outgoing.counted_bytes if self._transport is not None else 0

    # Requests in.

    def have_turn(self) -> None:
        """Note activity now, and do a round. The entrance calls it when a mute is over."""
        began = self.patience.last_activity = self._clock.monotonic()
        self._serve(began)

    def _describe(self) -> str:
        key = self._served_key
        name = ApiKey(key).name if key in ApiKey.__members__.values() else str(key)
        return f"a round that ended with {name} of {self.peer.host}:{self.peer.port}"

    def _serve(self, began: float) -> None:
        """Do a round: serve frames as far as order and limits allow, answer, settle the buffer.

        A request that raises ends the connection, after the answers to the requests before it.
        ``began``: the time now. The round's time is accounted to ``Turns``.
        """
        if self._is_in_round or self._is_lost:
            return
        turns = self._turns
        if turns.is_over:
            self._stand_back()
        self._is_in_round = True
        try:
            self._serve_frames(began)
        except (MalformedMessage, CloseConnection) as error:
            level = logging.INFO if isinstance(error, SpeaksTls) else logging.DEBUG
            self._complaints.note(level, f"closing {self.peer.host}: {error}")
            self._is_draining = True
        except Exception as error:  # noqa: BLE001 - it is told, with its traceback
            why = "its request failed unexpectedly"
            self._complaints.note(logging.ERROR, f"closing {self.peer.host}: {why}", error=error)
            self._is_draining = True
        finally:
            self._is_in_round = False
        if self._waiting:
            self._release_answers()
        if self._outgoing.size_bytes:
            self._send_outgoing()
        held_bytes = self._reader.settle()
        if (
            held_bytes
            or self._is_draining
            or self._is_giving_way
            or self._is_read_paused
            or self._outgoing.size_bytes
            or self._entrance.is_muted
        ):
            self._pace_reading(held_bytes, began)
        else:
            self.patience.frame_began = None  # The usual case: nothing is left over.
        if self._is_draining:
            self._close_if_drained()
        took = self._clock.monotonic() - began
        turns.used_seconds = used = turns.used_seconds + took  # As turns.spent, without the call.
        if took > NOTED_SECONDS or used > RENEW_SECONDS:
            turns.look(took, self._describe)

    def _serve_frames(self, began: float) -> None:
        entrance, waiting, outgoing = self._entrance, self._waiting, self._outgoing
        reader = self._reader
        full_bytes = SMALL_BYTES if self._answers.is_full else self._limits.write_buffer_bytes
        held_bytes = reader.held_bytes
        while not (self._is_draining or self._is_over or entrance.is_muted):
            if waiting and not self._release_answers():
                return
            if outgoing.size_bytes >= full_bytes:
                self._send_outgoing()
            if outgoing.is_paused or outgoing.size_bytes >= full_bytes:
                return
            if waiting and not self._unanswered.may_overlap(reader.peek_key()):
                return
            frame = reader.next_frame()
            if frame is None:
                return
            held_bytes -= LENGTH_BYTES + len(frame)
            self.patience.frame_began = None
            self._served_key = frame[1]  # The key's low byte; its high byte is 0 in all APIs.
            answer = entrance.dispatch(frame)  # A frame may replace the dispatch for the next one.
            if isinstance(answer, Pending):
                self._unanswered.wait_for(answer, len(frame), self.peer.host, self._serve_soon)
            elif answer is not None:
                self._answer_now(answer)
            if not held_bytes or self._has_had_its_time(began):
                return

    def _has_had_its_time(self, began: float) -> bool:
        """Whether the round has taken its time; frames that are left have to wait for a turn."""
        if self._clock.monotonic() - began <= SLICE_SECONDS:
            return False
        if self._reader.has_frame:
            self._stand_back()
        return True

    def _answer_now(self, answer: Answer) -> None:
        if self._waiting:
            self._unanswered.answer(answer)
        else:
            self._outgoing.put(answer)

    def _serve_soon(self) -> None:
        """If an answer may leave, do a round soon: one for all that are resolved in this turn.

        Not at once, because the caller that resolves an answer is in the middle of its own work.
        """
        if self._is_in_round or self._is_round_due:
            return
        if self._unanswered.has_answer:
            assert self._loop is not None, "requests arrive after connection_made"
            self._is_round_due = True
            self._loop.call_soon(self._serve_due)

    def _give_way(self) -> None:
        """Receive nothing more until this connection's next turn."""
        if not self._is_giving_way:
            self._is_giving_way = True
            self._turns.wait(self._take_turn)

    def _stand_back(self) -> None:
        """Serve no further request until this connection's next turn."""
        self._is_over = True
        self._give_way()

    def _take_turn(self) -> None:
        if self._is_lost:
            return
        self._is_giving_way = self._is_over = False
        self._shared_bytes = 0
        self.have_turn()

    def _serve_due(self) -> None:
        self._is_round_due = False
        self.have_turn()

    # Answers out.

    def _release_answers(self) -> bool:
        """Move ready answers, oldest first, to ``Outgoing``. False: no later request is served."""
        if not self._unanswered.release(self._outgoing):
            self._is_draining = True
        return not self._is_draining

    def _send_outgoing(self) -> None:
        try:
            if self._outgoing.send():
                self._stand_back()
        except RegionUnreadable as error:
            self._complaints.note(logging.ERROR, f"closing {self.peer.host}: {error}")
            self.close()

    # Pace and end.

    def _pace_reading(self, held_bytes: int, now: float) -> None:
        """Stop reading while no request can be served, and resume when one can.

        The time limit for a frame to arrive starts again when reading resumes: the pause was not
        the peer's fault.
        """
        outgoing = self._outgoing
        assert self._transport is not None, "pacing happens between connection_made and _lost"
        if self._transport.is_closing():
            return
        must_pause = (
            self._is_draining
            or self._is_giving_way
            or self._entrance.is_muted
            or outgoing.is_paused
            or outgoing.size_bytes >= self._limits.write_buffer_bytes
            or self._reader.has_frame  # The round left a frame, which has to wait.
        )
        is_starved = not must_pause and self._reader.writable() is None
        if not is_starved:
            self.patience.starved_since = None
        elif self.patience.starved_since is None:
            self.patience.starved_since = now
        must_pause = must_pause or is_starved
        if (must_pause and not self._is_giving_way) or not held_bytes:
            self.patience.frame_began = None
        elif self.patience.frame_began is None:
            self.patience.frame_began = now
        if must_pause and not self._is_read_paused:
            self._transport.pause_reading()
        elif not must_pause and self._is_read_paused:
            self._transport.resume_reading()
        self._is_read_paused = must_pause

    def _close_if_drained(self) -> None:
        if self._is_draining and not self._waiting and not self._outgoing.size_bytes:
            self.close()
