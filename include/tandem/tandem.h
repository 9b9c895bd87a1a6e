#pragma once

// All of tandem.

#include <torch/torch.h>

#include "tandem/batch.h"
#include "tandem/callbacks.h"
#include "tandem/central_storage_strategy.h"
#include "tandem/cluster_resolver.h"
#include "tandem/cluster_spec.h"
#include "tandem/communicator.h"
#include "tandem/cross_device_ops.h"
#include "tandem/data/cifar10.h"
#include "tandem/data/mnist.h"
#include "tandem/data/torch_dataset.h"
#include "tandem/dataset.h"
#include "tandem/device.h"
#include "tandem/error.h"
#include "tandem/input_context.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"
#include "tandem/mirrored_strategy.h"
#include "tandem/model.h"
#include "tandem/models/lenet.h"
#include "tandem/models/resnet.h"
#include "tandem/multi_worker_mirrored_strategy.h"
#include "tandem/one_device_strategy.h"
#include "tandem/optimizers.h"
#include "tandem/replica.h"
#include "tandem/server.h"
#include "tandem/strategy.h"
#include "tandem/summary.h"
#include "tandem/sync_batch_norm.h"
