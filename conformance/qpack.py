#!/usr/bin/env python3
"""Our QPACK against ls-qpack (pylsqpack), which shares no code with it, in both directions.

ls-qpack's encoder refers to entries that may not have arrived, so sections are blocked until they do; ours never does.
Streams overtake each other in every conversation: the bytes of the encoder and decoder streams arrive in pieces, and
sections in any order. A conversation is a table size, a number of blocked streams and a seed.

usage: qpack.py [--conversations N]
"""
import argparse
import random
import subprocess
import sys

from environment import example, imported

VERSION = "1.0.0"

NAMES = ["server", "x-a", "x-longer-name", "cache-control", "etag", "vary", "content-type", ":path", ":status", "x-frame-options"]
VALUES = ["200", "no-cache", "text/html; charset=utf-8", "deny", "", "/"] + [f"value-{n}" for n in range(12)]


class Weir:
    """Our encoder and decoder, in a process."""

    def __init__(self, binary, capacity, blocked):
        self.process = subprocess.Popen([binary, str(capacity), str(blocked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise AssertionError(f"it ended with {self.process.wait()}")
        return line[:-1]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def fields(chance):
    def value():
        return "v" * chance.randrange(60) if chance.random() < 0.2 else chance.choice(VALUES)

    return [(chance.choice(NAMES).encode(), value().encode()) for _ in range(chance.randrange(1, 10))]


def in_hex(headers):
    return ",".join(f"{name.hex()}:{value.hex()}" for name, value in headers)


def piece(wire, chance):
    """Takes a beginning of `wire`, often all of it."""
    length = len(wire) if chance.random() < 0.5 else chance.randrange(len(wire) + 1)
    taken = bytes(wire[:length])
    del wire[:length]
    return taken


def theirs_to_ours(lib, weir, capacity, blocked, chance):
    """Their encoder, our decoder. Returns how many sections were blocked."""
    encoder = lib.Encoder()
    instructions, waiting, count = bytearray(encoder.apply_settings(capacity, blocked)), [], 0
    for n in range(150):
        headers = fields(chance)
        more, section = encoder.encode(4 * n, headers)
        instructions += more
        waiting.append((4 * n, section, headers))
        chance.shuffle(waiting)
        late = [] if chance.random() < 0.7 else waiting[1:]
        encoder.feed_decoder(bytes.fromhex(weir.ask("i", piece(instructions, chance).hex())))
        if len(waiting) > 8:
            encoder.feed_decoder(bytes.fromhex(weir.ask("i", bytes(instructions).hex())))
            instructions.clear()
        for entry in [entry for entry in waiting if entry not in late]:
            stream, section, headers = entry
            answer = weir.ask("s", str(stream), section.hex())
            if answer == "blocked":
                count += 1
                continue
            answers, got = answer.split(" ")
            assert got == in_hex(headers), f"stream {stream}: {got}, not {in_hex(headers)}"
            encoder.feed_decoder(bytes.fromhex(answers))
            waiting.remove(entry)
    return count


def ours_to_theirs(lib, weir, capacity, blocked, chance):
    """Our encoder, their decoder. Returns how many bytes of instructions there were."""
    decoder = lib.Decoder(capacity, blocked)
    instructions, answers, waiting, count = bytearray(), bytearray(), [], 0
    for n in range(150):
        headers = fields(chance)
        more, section = weir.ask("e", str(4 * n), in_hex(headers)).split(" ")
        instructions += bytes.fromhex(more)
        count += len(more) // 2
        waiting.append((4 * n, bytes.fromhex(section), headers))
        while waiting and (len(waiting) > 8 or chance.random() < 0.5):
            stream, section, headers = waiting.pop(chance.randrange(len(waiting)))
            more, got = decoder.feed_header(stream, section)  # raises StreamBlocked if it has to wait
            assert got == headers, f"stream {stream}: {got}, not {headers}"
            answers += more
        decoder.feed_encoder(piece(instructions, chance))
        weir.ask("a", piece(answers, chance).hex())
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations", type=int, default=40, help="for each direction and table (40)")
    asked = parser.parse_args()
    lib = imported("qpack", "pylsqpack", VERSION, "pylsqpack")
    binary = example("WEIR_QPACK", "weir-h3", "qpack_lines")
    failed = False
    for direction in (theirs_to_ours, ours_to_theirs):
        for capacity, blocked in [(0, 0), (220, 0), (220, 16), (4096, 0), (4096, 16), (65536, 100)]:
            total, seed, name = 0, 0, f"qpack: {direction.__name__}, table of {capacity} bytes, {blocked} blocked streams"
            try:
                for seed in range(asked.conversations):
                    weir = Weir(binary, capacity, blocked)
                    try:
                        total += direction(lib, weir, capacity, blocked, random.Random(seed))
                    finally:
                        weir.close()
                if direction is theirs_to_ours:
                    assert (total > 0) == (blocked > 0 and capacity > 0), f"{total} sections were blocked"
                    print(f"PASS {name}: {total} sections waited")
                else:
                    assert (total > 0) == (capacity > 0), f"{total} bytes of instructions"
                    print(f"PASS {name}: {total} bytes of instructions")
            except Exception as e:
                failed = True
                print(f"FAIL {name}, seed {seed}: {type(e).__name__}: {e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
