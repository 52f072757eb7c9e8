"""Run by vLLM's interpreter: what `vllm serve` understands of the flags after its name."""

import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
understood = parser.parse_args(sys.argv[1:])
validate_parsed_serve_args(understood)
print(json.dumps(vars(understood), default=lambda thing: getattr(thing, "__dict__", str(thing))))
