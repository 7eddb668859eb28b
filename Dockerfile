# The program in an image of Debian:
#
#   docker build -t grpo .
#   docker run --rm -v "$PWD:/work" grpo init-project demo
#   docker run --rm -it -v "$PWD/demo:/work" grpo train configs/molecules/grpo.toml
#
# Files belong to root; `--user "$(id -u):$(id -g)"` makes them yours.
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo install --locked --path crates/grpo-cli --root /usr/local

FROM debian:bookworm-slim
COPY --from=build /usr/local/bin/grpo /usr/local/bin/grpo
WORKDIR /work
ENTRYPOINT ["grpo"]
CMD ["--help"]
