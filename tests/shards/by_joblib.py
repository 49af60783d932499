from joblib import Parallel, delayed
from model import SHARDS, fitted, of_shard

WORKERS = 2


def results(parameters):
    return parallel(delayed(of_shard)(parameters, shard) for shard in range(SHARDS))


with Parallel(n_jobs=WORKERS) as parallel:
    print(fitted(results))
