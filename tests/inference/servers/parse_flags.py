"""Run by vLLM's interpreter: what `vllm serve` understands of its flags.

Reads name -> list of arguments as JSON from standard input.
"""

import json
import sys
from contextlib import redirect_stderr
from io import StringIO

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

results = {}
for name, arguments in json.load(sys.stdin).items():
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    try:
        with redirect_stderr(StringIO()) as messages:
            parsed = parser.parse_args(arguments)
        validate_parsed_serve_args(parsed)
        results[name] = vars(parsed)
    except SystemExit:
        results[name] = {"error": messages.getvalue()}
print(json.dumps(results, default=lambda value: getattr(value, "__dict__", str(value))))
