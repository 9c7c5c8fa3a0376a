#!/bin/sh
# Signs a file with the OpenPGP key WEIR_SIGN_KEY.
#
#   scripts/dist/sign.sh FILE SIGNATURE GPG-OPTION...     such as --armor --detach-sign
set -eu
file=$1 signature=$2
shift 2
rm -f "$signature"
gpg --batch --yes --local-user "$WEIR_SIGN_KEY" --digest-algo SHA256 --output "$signature" "$@" "$file"
