# Two images, each one static binary and nothing else:
#   docker build --target gateway  --tag localhost/chandlery:0.1.0 .
#   docker build --target operator --tag localhost/chandlery-operator:0.1.0 .
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# .cargo/config.toml makes the binaries static and names the target.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package chandlery-gateway --package chandlery-operator \
 && mkdir /out \
 && cp target/*/release/chandlery target/*/release/chandlery-operator /out/

FROM scratch AS operator
COPY --from=build /out/chandlery-operator /chandlery-operator
USER 65532:65532
ENTRYPOINT ["/chandlery-operator"]

FROM scratch AS gateway
COPY --from=build /out/chandlery /chandlery
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/chandlery"]
