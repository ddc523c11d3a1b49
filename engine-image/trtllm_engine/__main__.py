"""`python -m trtllm_engine` is `trtllm-engine`."""

from trtllm_engine.cli import main

raise SystemExit(main())
