# strop with CUDA: docker build -t strop . && docker run --gpus all -v $PWD/runs:/strop/runs strop demo
# Not built where this was written: there is no container runtime and no GPU there.
FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /strop
COPY . /tmp/strop
RUN pip install --no-cache-dir '/tmp/strop[models,evaluators,tune,lm-eval]' && rm -rf /tmp/strop
ENTRYPOINT ["strop"]
CMD ["doctor", "--gpu"]
