#!/bin/bash
#SBATCH --job-name=fastes
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#
# sbatch examples/cluster/slurm.sh                     a new run
# sbatch examples/cluster/slurm.sh --resume runs/...   goes on with one, on any number of nodes
#
# It needs FastES in a virtual environment that all nodes see: ~/fastes-venv, or sbatch --export=ALL,FASTES_VENV=/path ...
# Submit it from a folder that all nodes see: the run goes to runs/ there.
#
# The head has no cores for episodes: it shares the first node with a worker, and has the driver. Two minutes before the time
# is up, Slurm's SIGTERM makes `fastes train` save and end.
set -euo pipefail

# shellcheck disable=SC1091
source "${FASTES_VENV:-$HOME/fastes-venv}/bin/activate"

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
# an address of the fabric that nodes reach each other by, and no public one; other users of the cluster reach it, too, so that
# a token of this job's own keeps them out: without one, whoever reaches Ray may run code (needs Ray 2.52)
RAY_AUTH_TOKEN=$(openssl rand -hex 32)
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # since Slurm 22.05 srun does not take it from sbatch: each node would get one core
ip=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
port=$((20000 + SLURM_JOB_ID % 10000))  # two jobs may share a node
export RAY_TMPDIR=${SLURM_TMPDIR:-/tmp}

pids=()
stop() {
  kill "${pids[@]}" 2>/dev/null || true
  wait || true
}
trap stop EXIT

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  ray start --head --node-ip-address="$ip" --port="$port" --num-cpus=0 --include-dashboard=false --block &
pids+=($!)
sleep 15

srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --overlap \
  ray start --address="$ip:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
pids+=($!)

if (($#)); then
  arguments=("$@")
else
  arguments=(Humanoid-v5 --population-scale 4)  # 160 candidates, more where episodes are short, for 128 cores
fi
srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap fastes train "${arguments[@]}" --cluster "$ip:$port" &
driver=$!
trap 'kill -TERM "$driver"' TERM
wait "$driver" || wait "$driver"  # the first one ends when SIGTERM comes
