"""The command line: stable keys, exit codes, one line for bad input, nothing half-written."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

Run = Callable[..., Any]
EXAMPLES = Path(__file__).parent.parent.parent / "examples"

BUILD = ["build", "fixed", "--out", "OUT"]
RESTORE = [*BUILD, "--lags", "12", "--depth", "auto", "--dtype", "float32", "--restore"]
ADAPTIVE = ["build", "adaptive", "--out", "OUT", "--target"]
KERNEL = ["build", "kernel", "--out", "OUT"]
COUPLING = ["build", "coupling", "--out", "OUT"]
IMPORT = ["import", "--out", "OUT"]
BAD = [
    [*BUILD, "--lags", "0"],
    [*BUILD, "--lags", "2,2"],
    [*BUILD, "--lags", "-3"],
    [*BUILD, "--lags", "2;5"],
    [*BUILD, "--lags", "2", "--readout", "__import__('os')"],
    [*BUILD, "--lags", "2,5", "--readout", "exp(m1*m2)"],
    [*BUILD, "--lags", "2", "--heads", "1000000000"],
    [*BUILD, "--lags", "2", "--error", "nan"],
    [*BUILD, "--lags", "2", "--error", "-1"],
    [*BUILD, "--lags", "2", "--rpe", "cubic"],
    [*BUILD, "--lags", "2", "--dim", "0"],
    [*BUILD, "--lags", "1000000000"],
    [*BUILD, "--target", "nowhere.toml"],
    [*BUILD],
    ["build", "fixed", "--lags", "2", "--out", "STRANGER"],
    ["compare", "BUNDLE"],
    ["compare"],
    ["compare", *["BUNDLE"] * 9],
    ["compare", "BUNDLE", "nowhere"],
    ["compare", "BUNDLE", "STRANGER"],
    ["compare", "BUNDLE", "TRUNCATED"],
    ["compare", "BUNDLE", "OTHER"],
    ["compare", "BUNDLE", "OTHER", "--target", "nowhere.toml"],
    ["compare", "BUNDLE", "BUNDLE", "--seed", "-1"],
    ["compare", "BUNDLE", "BUNDLE", "--sequences", "1000000000"],
    ["compare", "BUNDLE", "BUNDLE", "--sequences", "1"],
    ["compare", "BUNDLE", "BUNDLE", "--length", "2"],
    ["compare", "BUNDLE", "BUNDLE", "--length", "1000000000"],
    ["compare", "BUNDLE", "BUNDLE", "--tokens", "normal"],
    ["compare", "BUNDLE", "BUNDLE", "--tokens", "signs", "--target", "NESTED_TARGET"],
    ["compare", "BUNDLE", "BUNDLE", "--figure", "STRANGER"],
    *([*BUILD, "--lags", "4", "--norm", "mean-square", "--decays", d] for d in ("", "nan", "0", "-1,2", "1,1", "1e400", "x", "65")),
    [*BUILD, "--lags", "4", "--norm", "mean-square", "--heads", "25"],
    [*BUILD, "--lags", "1000000", "--norm", "mean-square", "--heads", "2"],
    [*BUILD, "--lags", "4", "--norm", "mean-square", "--readout", "m1**2"],
    [*BUILD, "--lags", "4", "--norm", "mean-square", "--bank", "paper"],
    [*BUILD, "--lags", "4", "--norm", "mean-square", "--tokens", "cauchy"],
    [*BUILD, "--lags", "4", "--tokens", "signs"],
    ["verify", "BUNDLE", "--norm", "l1"],
    ["verify", "BUNDLE", "--norm", "sup", "--tokens", "signs"],
    ["verify", "BUNDLE", "--norm", "mean-square", "--margin"],
    ["verify", "BUNDLE", "--tokens", "normal"],
    ["bound", "thm-4.4", "--lags", "2,3", "--heads", "64", "--norm", "mean-square"],
    ["bound", "least-squares", "--lags", "4"],
    ["bound", "least-squares", "--lags", "4", "--decays", "nan"],
    ["bound", "thm-3.1", "--lags", "4", "--all", "--rate", "2"],
    ["plan"],
    ["plan", "nowhere.toml"],
    ["plan", "NESTED_TARGET", "--lags", "2"],
    ["plan", "NESTED_TARGET", "--target", "NESTED_TARGET"],
    ["plan", "NESTED_TARGET", "--theorem", "thm-3.1"],
    *(["plan", "--lags", "2", "--error", error] for error in ("0", "-1", "nan", "inf", "1e-31", "x")),
    ["plan", "--lags", "2", "--dtype", "float16"],
    *(["plan", "--lags", "2", "--theorem", theorem] for theorem in ("thm-9.9", "lag-law", "least-squares", "jl-4.2")),
    ["plan", "--lags", "2", "--rpe", "lin"],
    ["plan", "--lags", "2", "--no-build", "--figure", "front.txt"],
    ["verify", "nowhere"],
    ["verify", "STRANGER"],
    ["verify", "TRUNCATED"],
    ["run", "BUNDLE", "--input", "NAN", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "nowhere.npy", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "PICKLE", "--output", "OUT"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "1000000000"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--rate", "x"],
    ["bound", "thm-3.1", "--lags", "4", "--solve", "heads"],
    ["bound", "thm-9.9", "--lags", "4", "--heads", "10"],
    ["theorems", "thm-9.9"],
    ["nonsense"],
    [*BUILD, "--lags", "２"],
    [*BUILD, "--lags", "2", "--width", "-5"],
    [*BUILD, "--lags", "2", "--width", "1000000000"],
    [*BUILD, "--lags", "2", "--error", "1e-300"],
    [*BUILD, "--lags", "5", "--heads", "4"],
    [*BUILD, "--lags", "2", "--share"],
    [*BUILD, "--lags", "2", "--seed", "-1"],
    [*BUILD, "--target", "/dev/zero"],
    [*BUILD, "--target", "DEEP"],
    ["build", "fixed", "--lags", "2", "--out", "x" * 300],
    ["build", "fixed", "--lags", "2", "--out", "LITTERED"],
    ["verify", "NESTED"],
    ["run", "BUNDLE", "--input", "MINIMUM", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "EMPTY", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "HUGE", "--output", "OUT"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--rate", "²"],
    ["bound", "thm-4.4", "--heads", "10"],
    ["bound", "thm-4.1", "--lags", "4", "--heads", "10", "--chain", "1"],
    ["bound", "thm-4.1", "--target", "NESTED_TARGET", "--heads", "10"],
    ["bound", "prop-4.2", "--lags", "4", "--heads", "10"],
    ["bound", "thm-4.1", "--lags", "2,3", "--solve", "width", "--error", "0.1"],
    ["limits", "dp-free", "--error", "0"],
    ["limits", "dp-free", "--error", "nan"],
    ["limits", "lag"],
    ["limits", "lag", "--lag", "0"],
    ["limits", "lag", "--lag", "-3", "--dtype", "float32"],
    ["limits", "lag", "--lag", "1000000", "--dtype", "float32"],
    ["limits", "lag", "--lag", "3", "--dtype", "float16"],
    ["limits", "lag", "--lag", "3", "--dtype", "float32", "--bits", "8"],
    ["limits", "lag", "--lag", "3", "--bits", "x"],
    ["limits", "lag", "--lag", "3", "--bits", "1000"],
    ["limits", "lag", "--lag", "3", "--bits", "8-9"],
    ["limits", "lag", "--lag", "3", "--heads", "0"],
    ["limits", "lag", "--lag", "3", "--certificate", "OUT"],
    ["limits", "lag", "--lag", "3", "--dtype", "float32", "--certificate", "nowhere/c.json"],
    ["limits", "lag", "--horizon", "--lag", "3"],
    ["limits", "lag", "--horizon", "--bits", "9-8"],
    ["limits", "slopes"],
    ["limits", "slopes", "--slopes", "alibi:0"],
    ["limits", "slopes", "--slopes", "alibi:1000"],
    ["limits", "slopes", "--slopes", "alibi:8", "--rpe", "log"],
    ["limits", "slopes", "--slopes", "0.5,nan"],
    ["limits", "slopes", "--slopes", "0.5,-1"],
    ["limits", "lag", "--lag", "4", "--norm", "mean-square"],
    ["limits", "lag", "--lag", "4", "--heads", "2", "--norm", "l2"],
    ["limits", "lag", "--lag", "4", "--heads", "2", "--norm", "mean-square", "--dtype", "float32"],
    ["limits", "lag", "--lag", "4", "--heads", "2", "--norm", "mean-square", "--rpe", "mixed"],
    ["limits", "lag", "--lag", "4", "--heads", "2", "--norm", "mean-square", "--certificate", "new.json"],
    ["limits", "lag", "--lag", "1000000", "--heads", "2", "--norm", "mean-square"],
    ["limits", "lag", "--horizon", "--norm", "mean-square"],
    ["limits", "kernel", "--kernel", "exp(s)", "--heads", "1", "--norm", "mean-square"],
    ["limits", "kernel", "--kernel", "exp(-s)", "--heads", "1", "--norm", "mean-square", "--certificate", "new.json"],
    ["limits", "slopes", "--slopes", "0.5,0.5"],
    ["limits", "slopes", "--slopes", ""],
    ["limits", "slopes", "--slopes", "0.5", "--lags", "1000"],
    ["limits", "positions", "--scheme", "rotary"],
    ["limits", "positions", "--scheme", ""],
    *(["limits", "positions", "--scheme", "t5", "--buckets", n] for n in ("1", "0", "-3", "x", "1000", "300")),
    *(
        ["limits", "positions", "--scheme", "t5", flag, "0"]
        for flag in ("--distance", "--window", "--lags", "--heads", "--reach", "--stride")
    ),
    *(
        ["limits", "positions", "--scheme", "kerple", "--kerple", p]
        for p in ("1", "2:0", "2:-1", "nan", "", ",", "2:1:1", "3,3:1", "1e9", "2:1/3")
    ),
    ["limits", "positions", "--scheme", "kerple", "--kerple", ",".join(str(k) for k in range(2, 99))],
    ["limits", "positions", "--scheme", "stride", "--stride", "1"],
    ["limits", "positions", "--dtype", "float8"],
    ["limits", "positions", "--lags", "1000"],
    ["experiment", "jl-table-9"],
    *(["experiment", "jl-table-2", "--seeds", n] for n in ("0", "-1", "1000", "x", "1.5")),
    *(["experiment", "jl-table-3", "--steps", n] for n in ("0", "-5", "10000000", "nan")),
    ["experiment", "jl-table-2", "--full", "--steps", "100"],
    ["verify", "DEEP"],
    ["verify", "NAN"],
    ["theorems", "lag-law", "--graph"],
    ["bound", "pi-law", "--lags", "4", "--heads", "10"],
    [*BUILD, "--lags", "34", "--rpe", "mixed"],
    [*BUILD, "--lags", "3,5", "--rpe", "mixed"],
    [*BUILD, "--lags", "3", "--rpe", "mixed", "--bank", "tuned"],
    [*BUILD, "--lags", "3", "--rpe", "mixed", "--dtype", "float32"],
    [*BUILD, "--lags", "1001", "--rpe", "mixed"],
    [*BUILD, "--lags", "3", "--bank", "balanced"],
    [*BUILD, "--lags", "300", "--bank", "balanced", "--dtype", "float32"],
    [*BUILD, "--lags", "9", "--bank", "balanced", "--dtype", "float32"],
    ["theorems", "--target", "nowhere.toml"],
    ["theorems", "thm-9.9", "--target", "NESTED_TARGET"],
    ["theorems", "--graph"],
    *([*BUILD, "--lags", "12", "--depth", depth] for depth in ("0", "-1", "13", "2.5", "many", "1e9")),
    [*BUILD, "--lags", "40", "--depth", "2", "--dtype", "float32"],
    [*BUILD, "--lags", "40", "--depth", "4", "--heads", "9"],
    [*BUILD, "--lags", "999999", "--depth", "auto"],
    [*BUILD, "--lags", "999999", "--depth", "auto", "--dtype", "float32"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--heads", "0"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--rpe", "log"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--bank", "tuned"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--bank", "balanced"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--share"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--error", "nan"],
    [*BUILD, "--lags", "4", "--restore", "--alphabet", "-1,1"],
    [*BUILD, "--lags", "4", "--depth", "auto", "--alphabet", "-1,1"],
    [*RESTORE],
    [*RESTORE, "--alphabet", "-1,1", "--dtype", "exact"],
    [*RESTORE, "--alphabet", "-1,1", "--width", "9"],
    *([*RESTORE, "--alphabet", letters] for letters in ("1", "-1,nan", "-1,inf", "-2,1", "-1,0.1", "1,1", "", "a,b", "1e99,1", "--1,1")),
    [*RESTORE, "--alphabet", "-1,-0.5,0,0.5,1", "--dim", "5"],
    ["bound", "shift-chain", "--lags", "4", "--heads", "10"],
    [*COUPLING],
    *([*COUPLING, "--rho", rho] for rho in ("1j*u", "sqrt(u-2)", "log(u)", "1/(u-v)", "nan", "x", "u**v", "__import__('os')", "")),
    *([*COUPLING, "--rho", "u*v", "--f", f] for f in ("1/x", "u", "sqrt(x-3)")),
    *([*COUPLING, "--rho", "u*v", "--F", readout] for readout in ("log(y)", "x", "y+")),
    *([*COUPLING, "--rho", "u*v", "--length", length] for length in ("0", "-3", "1000000", "many")),
    *([*COUPLING, "--rho", "u*v", "--rank", rank] for rank in ("0", "-1", "1000000", "2.5")),
    *([*COUPLING, "--rho", "u*v", "--knots", knots] for knots in ("0", "3", "1048576")),
    *([*COUPLING, "--rho", "u*v", "--error", error] for error in ("nan", "0", "-1", "1e-30", "inf")),
    [*COUPLING, "--rho", "u*v", "--target", "NESTED_TARGET"],
    *([*COUPLING, "--target", target] for target in ("nowhere.toml", "FIXED", "RANK_ZERO", "LENGTH_ZERO", "GROWING", "TWO_COUPLINGS")),
    ["build", "fixed", "--target", "RANK_ONE", "--out", "OUT"],
    ["limits", "coupling"],
    ["limits", "coupling", "--rho", "1/u"],
    ["limits", "coupling", "--rho", "u*v", "--rank", "0"],
    ["limits", "coupling", "--rho", "u*v", "--alpha", "0.4"],
    ["limits", "coupling", "--rho", "u*v", "--alpha", "nan"],
    ["limits", "coupling", "--rho", "u*v", "--figure", "nowhere/s.png"],
    ["limits", "rnn"],
    *(
        ["limits", "rnn", "--kernel", "exp(-s)", *bad]
        for bad in (["--length", "0"], ["--length", "9999"], ["--swap", "17"], ["--swap", "-1"])
    ),
    *(["limits", "rnn", "--kernel", "exp(-s)", "--filter", weights] for weights in ("", "1,1", "0.5,nan", "-0.5,0.5")),
    ["limits", "rnn", "--kernel", "exp(s)"],
    ["experiment", "jl-fig-5", "--sequences", "0"],
    ["experiment", "jl-fig-5", "--seed", "-1"],
    ["experiment", "jl-fig-5", "--figure", "nowhere/f.png"],
    *(["experiment", "horizon", "--lags", n] for n in ("0", "-2", "17", "1,2", "x")),
    ["experiment", "horizon", "--steps", "5"],
    ["experiment", "horizon", "--seeds", "0"],
    ["experiment", "horizon", "--figure", "nowhere/f.png"],
    ["experiment", "we-lm"],
    *(["experiment", "we-lm", "--text", text] for text in ("nowhere.txt", "ROOT", "/dev/null", "TWO_COUPLINGS", "NAN", "ONE_LETTER")),
    *(["experiment", "we-lm", "--text", "PROSE", "--length", n] for n in ("0", "7", "100000", "x")),
    ["experiment", "we-lm", "--text", "PROSE", "--length", "256"],
    ["experiment", "we-lm", "--text", "PROSE", "--length", "8", "--steps", "0"],
    ["experiment", "we-lm", "--text", "PROSE", "--length", "8", "--seeds", "1000"],
    ["bound", "jl-4.2", "--lags", "4", "--heads", "10"],
    ["bound", "jl-4.2", "--target", "RANK_ONE", "--rank", "0"],
    ["bound", "jl-4.2", "--target", "NESTED_TARGET", "--rank", "2"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--rank", "2"],
    *(
        [*ADAPTIVE, target]
        for target in ("nowhere.toml", "FIXED", "CYCLE", "ZERO", "HALF", "UNKNOWN", "NAN_TOKEN", "TWICE", "MANY", "EVIL")
    ),
    [*ADAPTIVE, "NESTED_TARGET", "--width", "5"],
    [*ADAPTIVE, "NESTED_TARGET", "--encode", "barron", "--width", "0"],
    [*ADAPTIVE, "NESTED_TARGET", "--encode", "barron", "--rounding", "relu"],
    [*ADAPTIVE, "NESTED_TARGET", "--dtype", "float64", "--rounding", "relu"],
    [*ADAPTIVE, "NESTED_TARGET", "--heads", "5"],
    [*ADAPTIVE, "NESTED_TARGET", "--error", "inf"],
    [*ADAPTIVE, "NESTED_TARGET", "--seed", "-1"],
    [*KERNEL],
    *([*KERNEL, "--kernel", text] for text in ("exp(s)", "s**-1", "(s-3)**-2", "nan", "__import__('os')", "exp(-s", "0", "exp(-s*1e-30)")),
    [*KERNEL, "--kernel", "exp(-s)", "--heads", "0"],
    [*KERNEL, "--kernel", "exp(-s)", "--kernel", "exp(-s)"],
    [*KERNEL, "--kernel", "exp(-s)", "--error", "nan"],
    [*KERNEL, "--kernel", "exp(-s)", "--readout", "m1"],
    [*KERNEL, "--kernel", "(s+1)**-2", "--bank", "tuned", "--heads", "20"],
    [*KERNEL, "--kernel", "exp(-s)", "--bank", "minimal"],
    [*KERNEL, "--target", "FIXED"],
    [*KERNEL, "--target", "KERNEL_FALSE"],
    [*KERNEL, "--target", "nowhere.toml"],
    ["bound", "thm-5.1", "--heads", "10"],
    ["bound", "thm-5.1", "--kernel", "exp(-s)", "--heads", "2"],
    ["bound", "thm-5.1", "--kernel", "(s+1)**-2", "--rpe", "log", "--heads", "64"],
    ["bound", "thm-5.1", "--kernel", "(s+1)**-2", "--heads", "64"],
    ["bound", "thm-3.1", "--lags", "2", "--kernel", "exp(-s)", "--heads", "10"],
    ["limits", "kernel", "--heads", "2"],
    ["limits", "kernel", "--kernel", "exp(-s)", "--heads", "0"],
    ["limits", "kernel", "--kernel", "exp(-s)", "--heads", "1000"],
    ["limits", "kernel", "--kernel", "exp(-s)*", "--heads", "2"],
    ["limits", "kernel", "--kernel", "s**-1", "--heads", "2"],
    ["limits", "architectures"],
    *(["limits", "architectures", f"--kernel={kernel}"] for kernel in ("", "s**-1", "exp(s)", "exp(-s)*", "__import__('os')", "x")),
    *(["limits", "architectures", "--kernel=exp(-s)", f"--sizes={n}"] for n in ("", "0", "-1", "1,x", "1.5", "5000", "9" * 11)),
    *(["limits", "architectures", "--kernel=exp(-s)", f"--error={error}"] for error in ("0", "-1", "nan", "inf", "x")),
    ["limits", "architectures", "--kernel=exp(-s)", "--sizes=1", "--figure", "nowhere/a.png"],
    *(["spectrum", folder, "--input", "VECTORS"] for folder in ("BUNDLE", "TRUNCATED", "NESTED", "STRANGER", "nowhere")),
    *(["spectrum", f"SCORES_{fault}", "--input", "VECTORS"] for fault in ("CUT", "NAN", "LONE", "VAST")),
    *(["spectrum", weights, "--input", "VECTORS"] for weights in ("NAN", "/dev/zero")),
    *(["spectrum", "SCORES", "--input", tokens] for tokens in ("NAN", "PICKLE", "HUGE", "EMPTY", "MINIMUM", "nowhere.npy")),
    ["spectrum", "SCORES"],
    ["spectrum", "SCORES", "--input", "VECTORS", "--layer", "1"],
    ["spectrum", "SCORES", "--input", "VECTORS", "--layer", "-1"],
    ["spectrum", "SCORES", "--input", "VECTORS", "--heads", "5"],
    ["spectrum", "SCORES", "--input", "VECTORS", "--heads", "1000000000000"],
    ["spectrum", "SCORES", "--input", "VECTORS", "--figure", "nowhere/f.png"],
    ["spectrum", "BUNDLE", "--input", "VECTORS", "--heads", "2"],
    ["spectrum", "BUNDLE", "--input", "VECTORS", "--layer", "7"],
    [*IMPORT],
    [*IMPORT, "WEIGHTS"],
    ["import", "WEIGHTS", "CONFIG"],
    ["import", "WEIGHTS", "CONFIG", "--out", "STRANGER"],
    ["import", "WEIGHTS", "CONFIG", "--out", "nowhere/net"],
    *([*IMPORT, weights, "CONFIG"] for weights in ("nowhere", "/dev/zero", "ROOT", "NAN", "SCORES", "SCORES_CUT", "SCORES_VAST")),
    *([*IMPORT, f"WEIGHTS_{fault}", "CONFIG"] for fault in ("CUT", "NAN", "LONE", "NORM", "BIASED", "FLAT", "WHOLE", "MANY")),
    *(
        [*IMPORT, "WEIGHTS", config]
        for config in ("nowhere.toml", "/dev/zero", "ROOT", "DEEP", "FIXED", "NAN", "CONFIG_KEY", "CONFIG_HEADS")
    ),
    *(["experiment", "jl-fig-1", "--seeds", seeds] for seeds in ("0", "1", "-3", "33", "1e9", "nan")),
    *(["experiment", "jl-fig-1", "--steps", count] for count in ("0", "19", "-1", "1000000000", "2.5")),
    ["experiment", "jl-fig-1", "--figure", "nowhere/f.png"],
    ["experiment", "jl-table-1", "--seeds", "1"],
    ["experiment", "jl-fig-9"],
    ["train", "--out", "OUT"],
    ["train", "--lags", "2"],
    ["train", "--lags", "-2", "--out", "OUT"],
    ["train", "--lags", "2", "--kernel", "exp(-s)", "--out", "OUT"],
    ["train", "--lags", "2", "--readout", "m1*", "--out", "OUT"],
    ["train", "--target", "nowhere.toml", "--out", "OUT"],
    ["train", "--lags", "2", "--out", "nowhere/deep"],
    ["train", "--lags", "2", "--out", "STRANGER"],
    ["train", "--start", "TRUNCATED", "--out", "OUT"],
    ["train", "--start", "nowhere", "--out", "OUT"],
    ["train", "--lags", "2", "--resume", "--out", "OUT"],
    ["train", "--lags", "2", "--checkpoint", "nowhere/c", "--out", "OUT"],
    ["train", "--lags", "2", "--checkpoint", "NAN", "--out", "OUT"],
    ["train", "--lags", "2", "--checkpoint", "NAN", "--resume", "--out", "OUT"],
    *(["train", "--lags", "2", "--steps", count, "--out", "OUT"] for count in ("0", "-1", "1000001", "nan")),
    *(["train", "--lags", "2", "--heads", count, "--out", "OUT"] for count in ("0", "-1", "1000000000")),
    *(["train", "--lags", "2", "--rate", rate, "--out", "OUT"] for rate in ("0", "-1", "nan", "inf")),
    *(["train", "--lags", "2", "--until", loss, "--out", "OUT"] for loss in ("-1", "nan", "inf")),
    ["train", "--lags", "2", "--patience", "0", "--out", "OUT"],
    ["train", "--lags", "2", "--seed", "-1", "--out", "OUT"],
    ["train", "--lags", "2", "--width", "100000000000", "--out", "OUT"],
    ["train", "--lags", "2", "--batch", "1000000000", "--out", "OUT"],
    ["train", "--lags", "2", "--length", "2", "--out", "OUT"],
    ["train", "--lags", "100000", "--out", "OUT"],
    ["train", "--lags", "2", "--rpe", "table", "--attention", "tmx", "--out", "OUT"],
    ["train", "--lags", "2", "--rpe", "table", "--reach", "-1", "--out", "OUT"],
    ["train", "--lags", "2", "--reach", "3", "--out", "OUT"],
    ["train", "--lags", "2", "--rpe", "none", "--out", "OUT"],
    ["train", "--lags", "2", "--window", "full", "--out", "OUT"],
    ["train", "--lags", "2", "--model-dim", "-4", "--out", "OUT"],
    ["experiment", "we-9z"],
    *(["experiment", "we-2a", "--steps", count] for count in ("0", "19", "-1", "10000000", "nan")),
    *(["experiment", "we-4a", "--seeds", seeds] for seeds in ("0", "-1", "33", "1.5")),
    *(["experiment", "we-2b", "--seed", seed] for seed in ("-1", "99999999999999", "x")),
    ["experiment", "we-4b", "--full", "--steps", "100"],
    *(["sweep", spec, "--out", "t.csv"] for spec in ("nowhere.toml", "/dev/zero", "ROOT", "DEEP", "FIXED", "NAN", "VAST_SWEEP")),
    ["sweep", "SWEEP"],
    *(["sweep", "SWEEP", "--out", place] for place in ("OUT", "t.xlsx", "nowhere/t.csv", "ROOT", "STRANGER", "NAN")),
    *(["sweep", "SWEEP", "--out", "t.csv", "--workers", count] for count in ("0", "-1", "257", "1000000000", "x")),
    *(["sweep", "SWEEP", "--out", "t.csv", "--scheduler", address] for address in ("x", "tcp://", "127.0.0.1:8786", "tcp://127.0.0.1:1")),
    ["sweep", "SWEEP", "--out", "t.csv", "--again", "never"],
]
MEMORY = '[[memory]]\nname = "m"\nlag = '
TARGETS = {
    "CYCLE": 'alphabet = [[1], [-1]]\n[[memory]]\nname = "m"\nlag = "2 + n"\n[[memory]]\nname = "n"\nlag = "2 + m"',
    "ZERO": f'alphabet = [[1], [-1]]\n{MEMORY}"1 + x0"',
    "HALF": f'alphabet = [[1], [0.5]]\n{MEMORY}"1 + x0"',
    "UNKNOWN": f'alphabet = [[1], [-1]]\n{MEMORY}"2 + y"',
    "NAN_TOKEN": f'alphabet = [[nan], [1]]\n{MEMORY}"1"',
    "TWICE": f'alphabet = [[1], [1.0]]\n{MEMORY}"1"',
    "MANY": f"alphabet = {[[k / 16] for k in range(10)]}\n" + "\n".join(f'[[memory]]\nname = "m{k}"\nlag = "{k + 1}"' for k in range(8)),
    "EVIL": f"alphabet = [[1], [-1]]\n{MEMORY}\"__import__('os').getpid()\"",
}

COUPLINGS = {
    "rank_one": 'length = 8\nrho = "u*v"',
    "rank_zero": 'length = 8\nsigma = "k**-1"\nrank = 0',
    "length_zero": 'length = 0\nrho = "u*v"',
    "growing": 'length = 8\nsigma = "k"\nrank = 3',
    "two_couplings": 'length = 8\nrho = "u*v"\nsigma = "k**-1"\nrank = 3',
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("places")
    code = "import sys, cli; sys.argv = ['lemmaformer', 'build', 'fixed', '--out', *sys.argv[1:]]; cli.main()"
    for name, lag in (("bundle", "2"), ("truncated", "2"), ("other", "3")):
        subprocess.run([sys.executable, "-c", code, str(root / name), "--lags", lag], check=True, capture_output=True)
    exact = root / "truncated" / "exact.json"
    exact.write_bytes(exact.read_bytes()[:-40])
    (root / "stranger").mkdir()
    (root / "stranger" / "notes.txt").write_text("mine")
    np.save(root / "nan.npy", np.array([0.0, np.nan]))
    np.save(root / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (root / "littered").mkdir()
    for file in (root / "bundle").iterdir():
        (root / "littered" / file.name).write_bytes(file.read_bytes())
    (root / "littered" / "notes.txt").write_text("mine")
    (root / "nested").mkdir()
    (root / "nested" / "card.json").write_text("[" * 100_000)
    (root / "deep.toml").write_text("a=" + "[" * 5000)
    np.save(root / "minimum.npy", np.array([-128], np.int8))
    np.save(root / "empty.npy", np.zeros((0, 5, 1)))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }"
    (root / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    np.save(root / "vectors.npy", np.ones((6, 3)))
    pair = {"query": np.ones((4, 3)), "key": np.ones((4, 3))}
    vast = b'{"query":{"dtype":"F64","shape":[1099511627776,1048576],"data_offsets":[0,8]}}'
    scores = {
        "scores": save(pair), "scores_cut": save(pair)[:-8], "scores_nan": save(pair | {"key": np.full((4, 3), np.nan)}),
        "scores_lone": save({"query": np.ones((4, 3))}), "scores_vast": len(vast).to_bytes(8, "little") + vast + bytes(8),
    }  # fmt: skip
    state = {"embedding": np.ones((2, 1)), "layers.0.attention.decay": np.ones(1), "layers.0.attention.value": np.ones((1, 1, 2))}
    state |= {"layers.0.attention.output": np.ones((1, 2, 1))}
    state |= {"layers.0.feedforward.inner": np.ones((3, 2)), "layers.0.feedforward.outer": np.ones((1, 3))}
    wrong = {
        "nan": {"embedding": np.full((2, 1), np.nan)}, "norm": {"layers.0.norm.weight": np.ones(2)}, "flat": {"embedding": np.ones(2)},
        "biased": {"layers.0.attention.value.bias": np.ones(1)}, "whole": {"embedding": np.ones((2, 1), np.int32)},
        "many": {"layers.0.attention.decay": np.ones(2)},
    }  # fmt: skip
    scores |= {"weights": save(state), "weights_cut": save(state)[:-8], "weights_lone": save({"embedding": np.ones((2, 1))})}
    scores |= {f"weights_{name}": save(state | change) for name, change in wrong.items()}
    for name, content in scores.items():
        (root / f"{name}.safetensors").write_bytes(content)
    config = '[[layer]]\nkind = "dp-free"\nwindow = "infinite"\nrpe = "lin"\n'
    for name, more in (("config", ""), ("config_key", "dropout = 0.1\n"), ("config_heads", "heads = 1000000000\n")):
        (root / f"{name}.toml").write_text(config + more)
    for name, text in TARGETS.items():
        (root / f"{name}.toml").write_text(f'kind = "adaptive"\n{text}\n')
    for name, text in COUPLINGS.items():
        (root / f"{name}.toml").write_text(f'kind = "coupling"\n{text}\n')
    for name, lags in (("sweep", "1:3"), ("vast_sweep", "1:1000000000")):
        (root / f"{name}.toml").write_text(f'call = "limits.lag"\n[grid]\nlag = "{lags}"\n')
    (root / "prose.txt").write_text("to be or not to be " * 60)
    (root / "one_letter.txt").write_text("a" * 100_000)
    envelope = '{ shape = "power", rate = 3, constant = 1 }'
    (root / "kernel_false.toml").write_text(f'kind = "kernel"\nkernels = ["(s+1)**-2"]\nenvelopes = [{envelope}]\n')
    return {
        **{name: root / f"{name}.toml" for name in TARGETS},
        **{name.upper(): root / f"{name}.toml" for name in COUPLINGS},
        **{name.upper(): root / f"{name}.safetensors" for name in scores}, "VECTORS": root / "vectors.npy",
        **{name.upper(): root / f"{name}.toml" for name in ("config", "config_key", "config_heads", "sweep", "vast_sweep")},
        "KERNEL_FALSE": root / "kernel_false.toml", "NESTED_TARGET": EXAMPLES / "nested.toml", "FIXED": EXAMPLES / "product.toml",
        "LITTERED": root / "littered", "NESTED": root / "nested", "DEEP": root / "deep.toml", "MINIMUM": root / "minimum.npy",
        "EMPTY": root / "empty.npy", "HUGE": root / "huge.npy", "PROSE": root / "prose.txt", "ONE_LETTER": root / "one_letter.txt",
        "BUNDLE": root / "bundle", "OTHER": root / "other", "TRUNCATED": root / "truncated", "STRANGER": root / "stranger",
        "NAN": root / "nan.npy", "PICKLE": root / "pickle.npy", "ROOT": root,
    }  # fmt: skip


HANGS = 120
"""Seconds after which a refusal would be a hang; what refusals take is in `benchmarks/start_up.py`."""


@pytest.mark.deep
@pytest.mark.parametrize("arguments", BAD, ids=lambda a: " ".join(a)[:60])
def test_bad_input_is_one_line(arguments: list[str], places: dict[str, Path], tmp_path: Path) -> None:
    real = [str(places.get(a, tmp_path / "out" if a == "OUT" else a)) for a in arguments]
    before = sorted(p for p in places["ROOT"].rglob("*"))
    command = [sys.executable, "-c", "import cli; cli.main()", *real]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=HANGS)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("lemmaformer: ") and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert sorted(p for p in places["ROOT"].rglob("*")) == before


def test_build_verify_run(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    built = run("build", "fixed", "--lags", "2,5", "--readout", "x0 + m1*m2", "--error", "1e-2", "--out", out, "--json")
    assert built.code == 0 and built.err == ""
    again = run("verify", out, "--json").json
    keys = {"theorem", "verdict", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"}
    assert keys <= set(again) and again["verdict"] == "holds"
    assert set(again["sizes"]) == {"layers", "heads", "width", "model_dim", "parameters"}
    assert all(set(part) == {"name", "certified", "bound"} for part in again["parts"])
    assert again["certified"] == built.json["certified"] <= 1e-2
    tokens = np.random.default_rng(0).uniform(-1, 1, 40)
    np.save(tmp_path / "x.npy", tokens)
    assert run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--json").json["shape"] == [40]
    wanted = tokens[5:] + tokens[3:-2] * tokens[:-5]
    assert np.abs(np.load(tmp_path / "y.npy")[5:] - wanted).max() <= again["certified"]


def test_target_files(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "target.toml"
    target.write_text('kind = "fixed"\ndim = 2\nlags = [1, 3]\nreadout = "x0[0] + m1[1]*m2[0]"\n')
    assert run("build", "fixed", "--target", target, "--error", "0.1", "--out", tmp_path / "net").code == 0
    for text in (
        'kind = "adaptive"\nalphabet = [[1]]\nmemory = [{name = "m", lag = "1"}]',
        "lags = [1",
        'kind = "fixed"\nlags = [1]\ncolour = "red"',
        'kind = "fixed"\nlags = 3',
        'kind="fixed"\nlags=[true]',
    ):
        target.write_text(text)
        assert run("build", "fixed", "--target", target, "--out", tmp_path / "other").code == 2


@pytest.mark.deep(only=("adaptive_kernels", "addition", "copying", "induction", "heavy_tail", "low_rank", "sines", "smooth_coupling"))
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.stem)
def test_examples(run: Run, example: Path, tmp_path: Path) -> None:
    kind = tomllib.loads(example.read_text())["kind"]
    result = run("build", kind, "--target", example, "--error", "0.05", "--out", tmp_path / "net", "--json")
    assert result.code == 0 and result.json["verdict"] == "holds" and result.json["certified"] <= 0.05
    again = run("verify", tmp_path / "net", "--json")
    assert again.code == 0 and again.json["certified"] == result.json["certified"]


@pytest.mark.deep
def test_build_adaptive(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    arguments = ["--target", EXAMPLES / "nested.toml", "--rpe", "log", "--attention", "tmx", "--error", "1e-3", "--out", out]
    built = run("build", "adaptive", *arguments, "--json")
    assert built.code == 0 and built.err == ""
    keys = {"theorem", "verdict", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"}
    assert keys <= set(built.json) and built.json["theorem"] == "thm-4.4" and built.json["sizes"]["layers"] == 3
    assert [part["name"] for part in built.json["parts"]] == ["lag m1", "extraction m1", "lag m2", "extraction m2", "read-out"]
    memory = built.json["memories"][1]
    assert memory["margin"] > 0.4 and memory["width_used"] < memory["width_theorem"] and memory["barron_norm"] == pytest.approx(2, rel=1e-3)
    assert built.json["score_parameters"]["order"] == "O(D)" and all(c["holds"] for c in built.json["conditions"])
    shown = run("build", "adaptive", *arguments, "--force").out
    assert "m2: level 2, lag (3 - m1)/2" in shown and "7 per head, O(D)" in shown and "holds" in shown
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], size=(2, 40, 1))
    np.save(tmp_path / "x.npy", tokens)
    assert run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--json").json["shape"] == [2, 40]
    np.save(tmp_path / "strange.npy", np.array([1.0, 0.25, -1.0, 0.0]))
    answer = run("run", out, "--input", tmp_path / "strange.npy", "--output", tmp_path / "z.npy", "--json").json
    assert answer["outside_alphabet"] == 2
    x, y = tokens[..., 0], np.load(tmp_path / "y.npy")
    for row in range(2):
        for t in range(4, 40):
            m1 = x[row, t - (1 if x[row, t] == 1 else 2)]
            m2 = x[row, t - (1 if m1 == 1 else 2)]
            assert abs(y[row, t] - x[row, t] * m1 * m2) <= built.json["certified"]


@pytest.mark.deep
def test_chains_of_shifts(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    arguments = ["--lags", "3,60", "--depth", "auto", "--restore", "--alphabet", "-1,1", "--dtype", "float32", "--out", out]
    built = run("build", "fixed", *arguments, "--json")
    assert built.code == 0 and built.err == "" and built.json["verdict"] == "holds" and built.json["certified"] == 0
    plan, digital = built.json["plan"], built.json["digital"]
    assert sum(plan["shifts"]) == 60 and "the fewest layers, then the fewest heads" in plan["objective"]
    assert plan["law"]["layers_times_heads"] >= plan["law"]["least"] == 60 and digital["exact"] and digital["letters"] == ["-1", "1"]
    again = run("verify", out, "--json")
    assert again.code == 0 and again.json["certified"] == 0 and again.json["plan"] == plan
    shown = " ".join(run("verify", out).out.split())
    assert "restored to the letters -1, 1" in shown and "law for linear chains" in shown
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], 400)
    np.save(tmp_path / "x.npy", tokens)
    done = run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--json").json
    assert done["shape"] == [400] and done["outside_alphabet"] == 0
    assert (np.load(tmp_path / "y.npy")[60:] == tokens[57:-3] + tokens[:-60]).all()
    np.save(tmp_path / "strange.npy", np.array([1.0, 0.25, -1.0, 0.0]))
    assert run("run", out, "--input", tmp_path / "strange.npy", "--output", tmp_path / "z.npy", "--json").json["outside_alphabet"] == 2
    result = run("build", "fixed", "--lags", "12", "--depth", "4", "--error", "1e-3", "--out", out, "--force", "--json")
    assert result.code == 0 and result.json["sizes"]["layers"] == 4 and result.json["certified"] <= 1e-3
    target = tmp_path / "target.toml"
    target.write_text('kind = "fixed"\nlags = [9]\nalphabet = [-1, 0, 0.5]\n')
    arguments = ["--target", target, "--depth", "auto", "--restore", "--dtype", "float64", "--out", out, "--force", "--json"]
    assert run("build", "fixed", *arguments).json["certified"] == 0
    assert "set restore and a depth" in run("build", "fixed", "--target", target, "--out", tmp_path / "other").err


@pytest.mark.deep
def test_chains_whose_card_or_weights_lie(run: Run, tmp_path: Path) -> None:
    from constructions.files.bundle import load, write
    from constructions.files.card import read_files

    out = tmp_path / "net"
    assert run("build", "fixed", "--lags", "8", "--depth", "4", "--dtype", "float64", "--error", "0.1", "--out", out).code == 0
    bundle = load(read_files(out))
    card = {k: v for k, v in bundle.card.items() if k not in ("format", "version", "integrity")}
    for changed in (
        {**card, "chain": {**card["chain"], "certified": card["chain"]["certified"] / 2}},
        {**card, "sizes": {**card["sizes"], "layers": 3}},
        {**card, "plan": {**card["plan"], "shifts": [1, 3, 2, 2]}},
        {**card, "target": {**card["target"], "lags": [7]}},
        {**card, "theorem": "thm-3.1"},
    ):
        write(out, bundle.network, changed, "", overwrite=True)
        assert run("verify", out).code in (1, 2)
    network = bundle.network.map(np.array)
    network.layers[1].attention.output[0, 3, 0] *= 1.001
    write(out, network, card, "", overwrite=True)
    assert run("verify", out).code == 1


@pytest.mark.deep
def test_a_sample_that_is_too_narrow_is_written_and_violated(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    built = run("build", "adaptive", "--target", EXAMPLES / "pair.toml", "--encode", "barron", "--width", "4", "--out", out, "--json")
    assert built.code == 1 and built.json["verdict"] == "violated" and built.json["certified"] is None
    verified = run("verify", out)
    assert verified.code == 1 and "the margin 1/2 is missed by" in " ".join(verified.out.split())
    theorem = max(memory["width_theorem"] for memory in built.json["memories"])
    built = run(
        "build", "adaptive", "--target", EXAMPLES / "pair.toml", "--encode", "barron", "--width", theorem, "--out", out, "--force", "--json"
    )
    assert built.code == 0 and built.json["verdict"] == "holds"


def test_limits_dp_free(run: Run) -> None:
    answer = run("limits", "dp-free", "--json").json
    assert answer["lower_bound"] == 1 and answer["lower_bound_exact"] == "1"
    assert answer["paper"] == 2 / 3 and answer["paper_exact"] == "2/3"
    assert answer["dp"]["heads"] == 3 and answer["dp"]["certified"] <= 1e-6
    weights = [Fraction(point["weight"]) for point in answer["certificate"]]
    assert sum(map(abs, weights)) == 1 and sum(weights) == 0
    for s in range(3):
        assert sum(w * point["tokens"][s] for w, point in zip(weights, answer["certificate"], strict=True)) == 0
    assert sum(w * p["tokens"][p["tokens"][0] + 1] for w, p in zip(weights, answer["certificate"], strict=True)) == 1
    assert "error ≥ 1 (paper: 2/3)" in " ".join(run("limits", "dp-free").out.split())


def test_adaptive_bounds(run: Run) -> None:
    nested = run("bound", "thm-4.4", "--target", EXAMPLES / "nested.toml", "--heads", "128", "--json").json
    assert nested["levels"] == [[2], [2]] and nested["layers"] == 3 and nested["root_sum_square"] < nested["attention"]
    assert nested["memories"][0]["width_theorem"] == 512
    chain = run("bound", "thm-4.4", "--lags", "2,3,4", "--chain", "1", "--heads", "300", "--json").json
    assert chain["levels"] == [[2], [3, 4]] and chain["layers"] == 3
    flat = run("bound", "thm-4.1", "--lags", "2,3", "--solve", "heads", "--error", "1e-2", "--json").json
    fixed = run("bound", "thm-3.1", "--lags", "2,3", "--solve", "heads", "--error", "1e-2", "--json").json
    assert flat["attention"] <= 1e-2 and flat["heads"] == fixed["heads"] and r"\frac" in flat["latex"]
    width = run("bound", "thm-4.1", "--target", EXAMPLES / "pair.toml", "--solve", "width", "--error", "1e-2", "--json").json
    assert width["readout_error"] <= 1e-2


def test_dependencies_are_shown(run: Run) -> None:
    tree = run("theorems", "--graph", "--target", EXAMPLES / "tree.toml").out
    assert "both: level 2, lag 3 + left + right ∈ {1, 3, 5}" in tree and "  right: level 1" in tree
    assert run("theorems", "--dot", "--target", EXAMPLES / "tree.toml").out.startswith("digraph memories")
    proof = run("theorems", "thm-4.4", "--graph", "--target", EXAMPLES / "tree.toml").out
    assert "extraction both: worst case over the lags of both" in proof and "lag leaf" in proof
    assert "but thm-4.4 does" in run("theorems", "thm-4.1", "--graph", "--target", EXAMPLES / "tree.toml").err
    assert run("theorems", "--target", EXAMPLES / "tree.toml", "--json").json["layers"] == 3


@pytest.mark.parametrize("lag,rpe", [(64, "lin"), pytest.param(64, "log", marks=pytest.mark.deep)])
def test_long_lags(run: Run, tmp_path: Path, lag: int, rpe: str) -> None:
    result = run(
        "build",
        "fixed",
        "--lags",
        lag,
        "--rpe",
        rpe,
        "--bank",
        "minimal",
        "--error",
        "1e-6",
        "--dtype",
        "exact",
        "--out",
        tmp_path / "n",
        "--json",
    )
    assert result.json["sizes"]["heads"] == lag and result.json["certified"] <= 1e-6
    assert run("verify", tmp_path / "n").code == 0


@pytest.mark.deep
def test_refusals_say_why(run: Run, tmp_path: Path) -> None:
    result = run("build", "fixed", "--lags", "12", "--dtype", "float32", "--error", "1e-2", "--out", tmp_path / "n")
    assert result.code == 2 and "float32 cannot hold lag 12" in result.err and "or --dtype exact" in result.err
    result = run("build", "fixed", "--lags", "5", "--heads", "4", "--out", tmp_path / "n")
    assert result.code == 2 and "lag law" in result.err
    for readout in ("exp(-1000000000*m1)", "tanh(1e30*m1)"):
        assert "steeper" in run("build", "fixed", "--lags", "2", "--readout", readout, "--out", tmp_path / "n").err
    result = run("build", "fixed", "--lags", "64", "--bank", "paper", "--error", "1e-2", "--out", tmp_path / "n")
    assert result.code == 2 and "--bank minimal" in result.err
    result = run("build", "fixed", "--lags", "2", "--dtype", "float32", "--readout", "m1**2", "--error", "0.1", "--out", tmp_path / "n")
    assert result.code == 2 and "certified to" in result.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "t.txt").write_text("1 2 3")
    assert "is not an .npy file" in run("spectrum", tmp_path / "w", "--input", tmp_path / "t.txt").err
    assert run("spectrum", tmp_path / "w", "--input", tmp_path / "x.npy").err.endswith("x.npy: No such file or directory\n")
    assert "filter takes decimals" in run("limits", "rnn", "--kernel", "exp(-s)", "--filter", "1/3,1/3").err
    assert "is a limit" in run("bound", "jl-6").err


def test_theorems(run: Run) -> None:
    assert "thm-3.1" in run("theorems").out
    assert run("theorems", "thm-3.1", "--json").json["id"] == "thm-3.1"
    lemmas = {lemma["name"]: lemma for lemma in run("theorems", "prop-4.2", "--json").json["lemmas"]}
    assert lemmas["(A)"]["relation"] == "≤" and lemmas["(B)"]["relation"] == "≥" and lemmas["(B)"]["budget"] == "1"
    assert "Wang & E" in run("theorems", "thm-3.1").out
    assert "extraction lag 4" in run("theorems", "thm-3.1", "--graph").out
    assert run("theorems", "thm-3.1", "--dot").out.startswith("digraph")
    assert r"\frac" in run("theorems", "thm-3.1", "--latex").out


def test_bound_keys(run: Run) -> None:
    keys = {"attention", "expression", "latex", "rate", "alpha", "gamma", "heads", "lower_bound_heads"}
    answer = run("bound", "thm-3.1", "--rpe", "log", "--lags", "2,5", "--solve", "heads", "--error", "1e-2", "--json").json
    assert keys <= set(answer) and answer["attention"] <= 1e-2 and answer["lower_bound_heads"] == 5
    assert len(answer["alpha"]) == 2 and sum(answer["split"]) == answer["heads"]
    fixed_rate = run("bound", "thm-3.1", "--lags", "4", "--heads", "256", "--rate", "2", "--json").json
    assert fixed_rate["rate"] == 2
    width = run("bound", "thm-3.1", "--lags", "2,5", "--readout", "x0 + m1*m2", "--solve", "width", "--error", "1e-2", "--json").json
    assert width["width"] > 3 and width["readout_error"] <= 1e-2 and width["barron_norm"] > 0


@pytest.mark.deep
def test_json_is_alone_on_stdout(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "demo", "--json")
    assert result.code == 0 and result.json["chain"]["verdict"] == "holds"
    rows = {(row["rpe"], row["lag"]): row for row in result.json["heads"]}
    assert all(row["minimal"] == row["law"] == row["lag"] for row in rows.values())
    assert all(row["minimal"] <= row["tuned"] <= row["paper"] for row in rows.values())
