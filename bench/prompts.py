"""Time and memory to generate the 40,000 prompts of the `interleave` pack."""

import resource
import time

MEANING = {
    "prompts_40k_seconds": ("generate 40,000 distinct prompts", "<= 15"),
    "prompts_40k_peak_gb": ("peak memory of the process that does", "<= 1"),
}


def measure() -> dict[str, float]:
    from assets.prompts.bank import generate_bank
    from assets.prompts.pack_loader import load_pack
    from assets.prompts.settings import BankSettings

    started = time.perf_counter()
    rows = generate_bank(load_pack("interleave"), BankSettings(), 40_000)
    seconds = time.perf_counter() - started
    if len({row.text for row in rows}) != 40_000:
        raise SystemExit(f"{len(rows)} prompts are not 40,000 distinct ones")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"prompts_40k_seconds": seconds, "prompts_40k_peak_gb": peak}
