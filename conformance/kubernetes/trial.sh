#!/bin/sh
# Tests what the official suite does not: the rights of weir-kube, what it says about objects that people get wrong, and
# whether requests fail while Secrets, classes, namespaces, replicas and the API server fail.
#
# usage: trial.sh [FOLDER]
#
# FOLDER gets chaos.json. STEPS (rights bad chaos) are the parts to run; BLESS=1 writes trial/bad/expected.txt anew.
# Otherwise as run.sh. It takes about six minutes.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
  folder=
  if [ -n "${1:-}" ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
  fi
  exec "$HERE/run.sh" "$HERE/trial.sh" --inside "$folder"
fi

result=
[ -z "${2:-}" ] || result=$2/chaos.json
for step in ${STEPS:-rights bad chaos}; do
  case $step in
    rights) set -- --account weir/weir --manifest weir.yaml ;;
    bad) set -- --folder "$HERE/trial/bad" ${BLESS:+--bless} ;;
    chaos) set -- --objects "$HERE/trial/chaos.yaml" --result "$result" ;;
  esac
  trial "$step" --kubeconfig "$KUBECONFIG" "$@"
done
