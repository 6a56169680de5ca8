#!/usr/bin/env bash
# Training on every GPU of this machine, or on several machines with the same line on each:
#
#   launch/torchrun.sh experiment=darkroom_relic run=/shared/runs/relic
#   NNODES=4 RDZV=host0:29500 launch/torchrun.sh experiment=... run=/shared/runs/...   (on each of 4 machines)
#
# The run directory must be on a disk that all machines see. On one machine `embodied-icrl train processes=N`
# does the same without this script.
set -euo pipefail
nnodes=${NNODES:-1}
processes=${PROCESSES:-$(python -c 'import torch; print(max(1, torch.cuda.device_count()))')}
if [ "$nnodes" = 1 ]; then
  rendezvous=(--standalone)
else
  rendezvous=(--nnodes "$nnodes" --rdzv-backend c10d --rdzv-endpoint "${RDZV:?host:port of the first machine}" --rdzv-id "${RDZV_ID:-embodied-icrl}")
fi
exec torchrun "${rendezvous[@]}" --nproc-per-node "$processes" --max-restarts 0 \
  --signals-to-handle SIGTERM,SIGINT,SIGUSR1 --shutdown-timeout 900 \
  -m embodied_icrl train "$@"
