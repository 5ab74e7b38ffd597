/* The best tokens of rows of scores. */

#pragma once

#include <stdint.h>

void jakiro_best(const float *scores, int64_t rows, int64_t vocabulary, float weight, const float *noise,
                 float noise_weight, int64_t width, int64_t *places, float *estimates, float *chances, int64_t threads);

void jakiro_best_of_mixture(const float *logits, const float *log_weights, int64_t experts, int64_t rows, int64_t vocabulary,
                            float weight, const float *noise, float noise_weight, int64_t width, float *offsets,
                            float *memory, int64_t *places, float *estimates, float *chances, int64_t *proposers,
                            int64_t threads);
