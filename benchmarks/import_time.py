"""Seconds that `import gatewise` takes, best and median of 15 fresh processes, and whether it loads torch.

python benchmarks/import_time.py
"""

import statistics
import subprocess
import sys

CODE = """
import sys, time
start = time.perf_counter()
import gatewise
print(time.perf_counter() - start, "torch" in sys.modules)
"""


def main() -> None:
    runs = [subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True) for _ in range(15)]
    seconds = [float(run.stdout.split()[0]) for run in runs]
    loaded = any("True" in run.stdout for run in runs)
    print(
        f"import gatewise: best {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s; torch loaded: {loaded}"
    )


if __name__ == "__main__":
    main()
