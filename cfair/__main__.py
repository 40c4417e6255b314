"""``python -m cfair``."""

from __future__ import annotations

from cfair.cli import main

raise SystemExit(main())
