// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package guide

// The sections of docs/install.md that are run.
const (
	CertManager = "Install cert-manager"
	Comity      = "Install Comity"
	CoreDNS     = "Let CoreDNS serve clusterset.local"
	Join        = "Join the clusters"
	Verify      = "Verify"
	First       = "Export a first Service"
	Uninstall   = "Uninstall"
)

// Sections are those from nothing to a Service that both clusters reach, in order.
func Sections() []string { return []string{CertManager, Comity, CoreDNS, Join, Verify, First} }

// Selected gives the blocks of some sections, in the order of the document.
func Selected(blocks []Block, sections ...string) []Block {
	var found []Block
	for _, b := range blocks {
		for _, s := range sections {
			found = append(found, Under([]Block{b}, s)...)
		}
	}
	return found
}

// Table substitutes what docs/install.md takes from registries: the charts, each
// with settings that name its local images, and the plugin.
func Table(certManager, comity, image, plugin string) []Substitution {
	return []Substitution{
		{
			Published: "oci://quay.io/jetstack/charts/cert-manager", Local: certManager,
			Why: "the chart that CERT_MANAGER_CHART names, else the published one",
		},
		{
			Published: "oci://ghcr.io/comity-mcs/charts/comity", Local: comity + " " + image,
			Why: "the chart of this checkout, with the image that was made from it, and settings for a test",
		},
		{
			Published: "kubectl krew install --manifest-url=https://github.com/comity-mcs/comity/releases/latest/download/comity.yaml",
			Local:     plugin,
			Why:       "krew downloads an archive; here the plugin is compiled and put on the PATH",
		},
	}
}
