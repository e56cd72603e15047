"""The command line, one file per group of commands: parse, call the library, show. Only here are options spelt as flags."""
