#!/usr/bin/env bash
# tutorial.sh launch|clean-up NAME ZONE SECONDS STARTED: one TPU VM by gcloud alone, in the order of Google's own pages: create
# (docs.cloud.google.com/tpu/docs/create-tpu-vm), connect and run, delete, list
# (docs.cloud.google.com/tpu/docs/managing-tpus-tpu-vm). With TRAP=1 it deletes the VM however it ends, if it can.
set -euo pipefail
what=$1 name=$2 zone=$3 seconds=$4 started=$5
tpu() { gcloud compute tpus tpu-vm "$@" --zone="$zone"; }

clean_up() {
    tpu delete "$name" --quiet || echo "delete failed: is it gone already?"
    left=$(tpu list --format='value(name)') # an error here is an error of the script
    if grep -q "$name" <<<"$left"; then
        echo "$name is still there"
        return 1
    fi
    echo "$name is deleted"
}

if [ "$what" = launch ]; then
    if [ "${TRAP:-}" ]; then trap 'clean_up' EXIT; fi
    tpu create "$name" --accelerator-type=v3-8 --version=tpu-ubuntu2204-base
    tpu ssh "$name" --command="touch $started; sleep $seconds"
    if [ "${TRAP:-}" ]; then exit; fi
fi
clean_up
