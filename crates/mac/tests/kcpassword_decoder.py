"""Reads /etc/kcpassword files as loginwindow does, written from the format's description alone.

Each line of standard input is a file in hexadecimal digits; each line of standard output is the
password in it, in hexadecimal digits, or `invalid` and why.
"""

import sys

# The key as people who took the format apart publish it, in decimal.
KEY = (125, 137, 82, 35, 210, 188, 221, 234, 163, 185, 31)


def decode(file: bytes) -> bytes:
    if len(file) % 12:
        raise ValueError("its length is no multiple of 12")
    password = bytearray()
    position = 0
    for byte in file:
        letter = byte ^ KEY[position]
        position = position + 1 if position < 10 else 0
        if letter == 0:
            if len(file) - len(password) > 12:
                raise ValueError("it is padded by more than one block")
            return bytes(password)
        password.append(letter)
    raise ValueError("nothing ends the password")


for line in sys.stdin:
    try:
        print(decode(bytes.fromhex(line.strip())).hex())
    except ValueError as error:
        print("invalid:", error)
