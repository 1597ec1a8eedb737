"""A policy whose gradient is known on paper."""

import math
import re

import numpy as np
from planted import SkilledAgent

from genenv.contracts.engine import Loss


class OneLogit(SkilledAgent):
    """One parameter, the logit of success: grad log pi is 1 - p where solved, -p elsewhere."""

    def gradient(self, data, loss):
        assert loss == Loss("cross_entropy")
        (datum,) = data
        text = self.chat.decode(datum.tokens)
        p = 1.0 / (1.0 + math.exp(int(re.search(r"level (\d)", text).group(1)) - self.skill))
        written = [t for t, w in zip(datum.tokens, datum.weights, strict=True) if w]
        weight = next(w for w in datum.weights if w)  # loss = -sum w log pi
        return np.array([-weight * (1.0 - p if self.chat.decode(written).startswith("ok") else -p)], dtype=np.float32)
