import ray
from model import SHARDS, fitted, of_shard

WORKERS = 2


def results(parameters):
    return ray.get([task.remote(parameters, shard) for shard in range(SHARDS)])


ray.init(num_cpus=WORKERS)
task = ray.remote(of_shard)
print(fitted(results))
