"""Each write, sync, rename and link of a command fails or kills it, one after the other; then the command is repeated.

`make faults` runs it all and writes results/faults.json; the table of docs/reliability.md comes from that. It needs
Linux and a C compiler: `shim.c` stands between the process and the system.
"""
