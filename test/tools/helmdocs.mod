module github.com/comity-mcs/comity/test/tools/helmdocs

go 1.26.0

require github.com/norwoodj/helm-docs v1.14.2
