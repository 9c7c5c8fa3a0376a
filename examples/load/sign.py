"""The program of room.yaml: a line of JSON in, a line of JSON out, until its input ends."""

import hashlib
import hmac
import json
import os
import sys

key = os.environ.get("SIGN_KEY", "dev").encode()
for line in sys.stdin:
    text = json.loads(line)["text"].encode()
    print(json.dumps({"signature": hmac.new(key, text, hashlib.sha256).hexdigest()}), flush=True)
