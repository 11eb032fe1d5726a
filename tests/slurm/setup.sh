#!/bin/sh
# A SLURM of one node on this machine, for tests/grid/test_slurm.py: Debian's slurm-wlm and munge, with a configuration and
# state of their own in FOLDER, so that no other SLURM of this machine is touched. Needs root. Called again, it starts what
# does not run and makes the node idle.
#   sh tests/slurm/setup.sh [FOLDER]         then `export SLURM_CONF=FOLDER/slurm.conf` to look with sinfo and squeue
#   sh tests/slurm/setup.sh --stop [FOLDER]
set -eu

stop=
if [ "${1:-}" = --stop ]; then stop=1; shift; fi
folder=${1:-/tmp/adamatch-slurm}
node=$(hostname -s)
export SLURM_CONF="$folder/slurm.conf"

running() { [ -s "$folder/$1.pid" ] && kill -0 "$(cat "$folder/$1.pid")" 2>/dev/null; }

if [ "$stop" ]; then
    for daemon in slurmd slurmctld; do
        if running "$daemon"; then kill "$(cat "$folder/$daemon.pid")"; fi
    done
    exit 0
fi

[ "$(id -u)" = 0 ] || { echo "error: $0 needs root, to start munged, slurmctld and slurmd" >&2; exit 1; }
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
    command -v apt-get >/dev/null || { echo "error: install SLURM and munge first: there is no apt-get here" >&2; exit 1; }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurm-wlm munge >/dev/null
fi

if ! munge -n >/dev/null 2>&1; then
    [ -s /etc/munge/munge.key ] || mungekey --create
    install -d -o munge -g munge -m 755 /run/munge
    rm -f /run/munge/munge.socket.2
    runuser -u munge -- munged
fi

mkdir -p "$folder/state" "$folder/spool"
cat >"$SLURM_CONF" <<CONF
ClusterName=adamatch-test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MaxArraySize=10
KillWait=5
NodeName=$node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes=$node Default=YES MaxTime=60 State=UP
CONF

# In a session of their own, so that they outlive the shell that set them up.
running slurmctld || setsid slurmctld >/dev/null 2>&1
running slurmd || setsid slurmd >/dev/null 2>&1
for _ in $(seq 60); do
    state=$(sinfo -h -o %T 2>/dev/null || true)
    case $state in
    idle | mixed | allocated)
        echo "export SLURM_CONF=$SLURM_CONF"
        exit 0
        ;;
    drained* | down* | draining*) scontrol update nodename="$node" state=resume 2>/dev/null || true ;;
    esac
    sleep 0.5
done
echo "error: the node is ${state:-not there}: see $folder/slurmctld.log and $folder/slurmd.log" >&2
exit 1
