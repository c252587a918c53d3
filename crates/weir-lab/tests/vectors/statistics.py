"""Second implementation of the lab's statistics.

Prints the numbers that the unit tests of src/stats hold as constants. Needs
NumPy and SciPy; run by hand when a definition changes.
"""

import math

import numpy
from scipy import stats

MASK = (1 << 64) - 1


def splitmix(seed):
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def median_interval(values, seed, resamples=10_000):
    rng = splitmix(seed)
    n = len(values)
    medians = numpy.sort(
        [numpy.median([values[(next(rng) * n) >> 64] for _ in range(n)]) for _ in range(resamples)]
    )
    tail = (1.0 - 0.95) / 2.0
    ends = [medians[math.ceil(share * resamples) - 1] for share in (tail, 1.0 - tail)]
    return numpy.median(values), *ends


RATIOS = [0.71, 0.74, 0.69, 0.75, 0.72, 0.70, 0.78, 0.73, 0.715, 0.735]
print("bootstrap", *map(repr, map(float, median_interval(RATIOS, 42))))
EXACT = [-0.34, -0.31, 0.02, -0.29, -0.33, -0.36, 0.05, -0.315, -0.335, -0.3]
TIED = [1.0, -1.0, 2.0, 2.0, 3.0, -2.0, 4.0, 5.0]
ZEROS = [0.0, 1.5, 2.5, -0.5, 3.5, 0.0, 4.5, 5.5]
LONG = [i * (-1.0 if i % 3 == 0 else 1.0) for i in range(1, 61)]
print("exact", repr(float(stats.wilcoxon(EXACT, method="exact").pvalue)))
print("tied", repr(float(stats.wilcoxon(TIED, method="approx").pvalue)))
print("zeros", repr(float(stats.wilcoxon(ZEROS, method="approx").pvalue)))
print("long", repr(float(stats.wilcoxon(LONG, method="approx").pvalue)))
SPREAD = [41.2, 39.9, 40.1, 55.0, 40.4, 39.7, 40.0, 40.2, 43.5, 40.3, 39.8, 61.25]
centre = numpy.median(SPREAD)
print("spread", centre, numpy.median(numpy.abs(SPREAD - centre)),
      *[numpy.percentile(SPREAD, q, method="inverted_cdf") for q in (25, 90, 99)])
