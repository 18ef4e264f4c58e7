"""The application for ``celery -A worker.celery``: settings come from SPEEDINFER_CONFIG and the environment."""

import os
from socket import gethostname

from settings.load import load_settings
from worker.app import create_app
from worker.tracing.wanted import traces_wanted

app = create_app(load_settings(None, os.environ, gethostname()), traces_wanted(os.environ))
