"""A short name for a configuration, to see whether two workers have the same one."""

import hashlib
import json

from settings.schema import Settings


def config_digest(settings: Settings) -> str:
    """12 hexadecimal digits that stand for all that is in effect, defaults included.

    Without `worker_id`, which always differs, and without secrets: of headers only the names count, of the Redis URL only
    the address. A header that changes its value therefore keeps the digest.
    """
    tree = settings.model_dump(mode="json", exclude={"worker_id", "redis_url", "redis_password", "runtime_headers"})
    tree["redis_address"] = settings.redis_address
    tree["runtime_headers"] = sorted(settings.runtime_headers)
    text = json.dumps(tree, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
