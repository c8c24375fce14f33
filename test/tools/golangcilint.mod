module github.com/comity-mcs/comity/test/tools/golangcilint

go 1.26.0

require github.com/golangci/golangci-lint/v2 v2.15.0
