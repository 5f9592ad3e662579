"""What each command is about, in a line: for ``ottla --help``, which imports no command.

A test holds these to what the commands say of themselves.
"""

ABOUT = {
    "serve": "Start a broker.",
    "topic": "Create, list, describe, alter, measure, trim and delete topics.",
    "produce": "Send each line of standard input as a record.",
    "consume": "Print a topic's records.",
    "group": "List, describe, watch, reset and delete consumer groups.",
    "cluster": "Look at a cluster: its brokers, versions, disks and health; wait for it.",
    "config": "Show and change configs; tell where they come from.",
    "txn": "List, describe and abort transactions.",
    "user": "List, make and delete users that log in by SCRAM.",
    "quota": "List, set and unset how much clients may ask for.",
    "acl": "List, add and remove ACLs: who may do what.",
    "pipeline": "Make, check, explain and run pipelines of Spark.",
    "cat": "Do what kcat does, with kcat's options and output.",
    "bench": "Measure a cluster: how fast it takes and gives records, and how long one takes.",
    "log": "Look into the files of a data directory. A broker may run; nothing is changed.",
    "doctor": (
        "Tell whose a data directory is, how it was left, and what to do about what is odd.\n"
        "Of a cluster, by HOST:PORT: whether clients reach it, what is offline or nearly full,"
        " who might get in."
    ),
    "profile": "Keep connection settings by name, and choose.",
    "completion": (
        "Print what makes a shell complete commands, options and live names at the tab key."
    ),
    "version": "Tell the version and what it runs on.",
}
