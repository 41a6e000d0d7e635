"""From a denoiser to token ids: one algorithm per file, the categorical draw in one place."""
