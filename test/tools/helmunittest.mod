module github.com/comity-mcs/comity/test/tools/helmunittest

go 1.26.0

require github.com/helm-unittest/helm-unittest v1.1.2

replace github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0
