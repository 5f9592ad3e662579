from ottla.client.library.client import AsyncClient as AsyncClient
from ottla.client.library.client import Client as Client
from ottla.client.library.failures import BadArgument as BadArgument
from ottla.client.library.failures import ClientClosed as ClientClosed
from ottla.client.library.failures import ClientError as ClientError
from ottla.client.library.failures import Fenced as Fenced
from ottla.client.library.failures import GroupMoved as GroupMoved
from ottla.client.library.failures import NotAllowed as NotAllowed
from ottla.client.library.failures import Refused as Refused
from ottla.client.library.failures import TimedOut as TimedOut
from ottla.client.library.failures import Undecodable as Undecodable
from ottla.client.library.failures import Unreachable as Unreachable
from ottla.client.library.records import Hooks as Hooks
from ottla.client.library.records import Record as Record
from ottla.client.library.records import Written as Written
from ottla.ids import TopicPartition as TopicPartition

__version__: str
