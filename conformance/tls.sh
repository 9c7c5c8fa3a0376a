#!/bin/sh
# TLS posture: sslyze (PyPI) against Mozilla's 'intermediate' profile, testssl.sh (Debian) for known vulnerabilities.
#
# Passes if the only finding is the self-signed chain, which is ours.
. "$(dirname "$0")/lib.sh"
ensure testssl openssl python3 venv
VENV=$TOOLS/sslyze
[ -x "$VENV/bin/sslyze" ] || { python3 -m venv "$VENV" && "$VENV/bin/pip" install -q sslyze; } || { fail "tls: sslyze cannot be installed"; exit 1; }

certificate
[ -n "${GATEWAY_PORT:-}" ] || {
  ORIGIN_PORT=$(free_port)
  start python3 "$HERE/origin.py" "$ORIGIN_PORT"
  wait_for_port "$ORIGIN_PORT"
}
start_weir tls

"$VENV/bin/sslyze" --mozilla_config=intermediate "localhost:$PORT" >"$WORK/sslyze" 2>&1 </dev/null || true
expect "tls: sslyze ran" grep -q 'COMPLIANCE AGAINST' "$WORK/sslyze"
# One line per complaint, each with a star; a self-signed chain is reported as untrusted.
complaints=$(sed -n '/COMPLIANCE AGAINST/,$p' "$WORK/sslyze" | grep '^ *\* ' | grep -vi 'certificate path validation\|path_validation\|not trusted' || true)
expect "tls: Mozilla intermediate${complaints:+: $complaints}" [ -z "$complaints" ]

# --warnings off: ask nothing; -U: all known vulnerabilities
timeout 480 testssl --quiet --color 0 --warnings off -U "localhost:$PORT" >"$WORK/testssl" 2>&1 </dev/null || true
expect "tls: testssl.sh ran" grep -q 'not vulnerable' "$WORK/testssl"
# It says 'not vulnerable (OK)', 'potentially VULNERABLE', 'VULNERABLE (NOT ok)'.
found=$(grep 'VULNERABLE' "$WORK/testssl" || true)
expect "tls: vulnerabilities${found:+: $found}" [ -z "$found" ]
exit $FAILED
