"""Certificates of single layers whose weights are arbitrary, trained ones too: `dp_free` is the entry, the other modules are parts of its
proof. They import from analyzer, constructions and `verify.chain` only, never from theorems, which call them."""
