"""The parts of `./test`: how steps are run within limits, and how a failure is named."""
