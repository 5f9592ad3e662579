"""Keeps closed what ACLs closed, when these are lost with the metadata.

With an authorizer, who has no ACL may do nothing: that is so without any ACLs, too. But
``allow.everyone.if.no.acl.found`` opens what no ACL is about, and that would be everything.
"""

from collections.abc import Sequence

from ottla.config import authorization as options
from ottla.config.config import Config
from ottla.env.disk import Disk
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.keys import Keys
from ottla.metadata.store import MetadataStore
from ottla.node.identity import have_partitions


async def refuse_to_open_all(
    store: MetadataStore, keys: Keys, disk: Disk, log_dirs: Sequence[str], config: Config
) -> None:
    """Refuse to begin with data, a new store, and options that open all to everybody.

    Before the store gets its cluster. Blocks. Raises LogDirectoryUnusable, MetadataError.
    """
    if not (
        config[options.AUTHORIZER_CLASS_NAME] and config[options.ALLOW_EVERYONE_IF_NO_ACL_FOUND]
    ):
        return
    if await store.get(keys.meta) is not None or not have_partitions(disk, log_dirs):
        return
    key = options.ALLOW_EVERYONE_IF_NO_ACL_FOUND.key
    why = (
        f"there are partitions, but no metadata: if there were ACLs they are lost, and with {key}"
        " everybody could use what they closed"
    )
    fix = f"start with -D {key}=false, make the ACLs again as one of super.users, and set it then"
    raise LogDirectoryUnusable(log_dirs[0], why, fix)
