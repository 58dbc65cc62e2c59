// Package chart_test renders the chart as Helm does, and holds what comes out to the types of Kubernetes and to blockd itself.
package chart_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

// objects are what a rendering makes, by kind and name.
type objects struct {
	sets     map[string]*apps.StatefulSet
	services map[string]*core.Service
	maps     map[string]*core.ConfigMap
	budgets  map[string]*policy.PodDisruptionBudget
	networks map[string]*networking.NetworkPolicy
	monitors map[string]*monitoring.ServiceMonitor
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c := testkit.Value(chartloader.Load("../blockd"))(t)
	testkit.Must(t, c.Validate())
	return c
}

// render renders the chart with values as YAML; the error is that of the templates.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	given := testkit.Value(chartutil.ReadValues([]byte(values)))(t)
	c := load(t)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "mail", Namespace: "mx", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// made renders the chart and decodes every document strictly into the type of its kind.
func made(t *testing.T, values string) objects {
	t.Helper()
	texts := testkit.Value(render(t, values))(t)
	o := objects{map[string]*apps.StatefulSet{}, map[string]*core.Service{}, map[string]*core.ConfigMap{}, map[string]*policy.PodDisruptionBudget{},
		map[string]*networking.NetworkPolicy{}, map[string]*monitoring.ServiceMonitor{}}
	for file, text := range texts {
		for _, one := range strings.Split("\n"+text, "\n---\n") {
			var head struct {
				Kind, APIVersion string
				Metadata         struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(one), &head); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, one)
			}
			if head.Kind == "" {
				continue
			}
			name := head.Metadata.Name
			switch head.APIVersion + " " + head.Kind {
			case "apps/v1 StatefulSet":
				into(t, one, name, o.sets)
			case "v1 Service":
				into(t, one, name, o.services)
			case "v1 ConfigMap":
				into(t, one, name, o.maps)
			case "policy/v1 PodDisruptionBudget":
				into(t, one, name, o.budgets)
			case "networking.k8s.io/v1 NetworkPolicy":
				into(t, one, name, o.networks)
			case "monitoring.coreos.com/v1 ServiceMonitor":
				into(t, one, name, o.monitors)
			default:
				t.Errorf("%s: a %s %s, which the test does not know", file, head.APIVersion, head.Kind)
			}
		}
	}
	return o
}

func into[T any](t *testing.T, text, name string, all map[string]*T) {
	t.Helper()
	one := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), one); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if all[name] != nil {
		t.Errorf("two objects of one kind are called %q", name)
	}
	all[name] = one
}

const plain = "allowFrom: [10.0.0.0/8]\n"

const everything = `
allowFrom: [10.0.0.0/8, "fd00::/8"]
hostname: mx.here.example
replicas: 3
image: {repository: registry.here.example/blockd, tag: "1.2", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
config: |
  [smtp]
  upstream = "smtp://postfix.mx.svc:10025"
  client_info = "xclient"
  [resp]
  listen = ""
  [[list]]
  name = "bulk"
  path = "/lists/bulk.txt"
  [[list]]
  name = "db"
  path = "/var/lib/blockd/db"
  [list.source]
  kind = "postgres"
  dsn_file = "/run/secrets/blockd/dsn/url"
  query = "select entry from senders"
lists: {bulk.txt: "bulk.example\n"}
secrets: {dsn: mail-database}
env: {BLOCKD_REFUSAL_CONTACT: "mailto:postmaster@here.example", BLOCKD_SMTP_MAX_RECIPIENTS: 200, BLOCKD_SMTP_CHUNKING: true}
doors: {smtp: {enabled: true, port: 25}}
http: {tokenSecret: mail-token}
service: {type: LoadBalancer, annotations: {a.example/b: "1"}}
networkPolicy: {mailFrom: [{ipBlock: {cidr: 10.0.0.0/8}}], httpFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
persistence: {enabled: true, size: 5Gi, storageClass: fast}
podAnnotations: {a.example/c: "2"}
nodeSelector: {disk: ssd}
tolerations: [{key: mail, operator: Exists}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname}}]}}
`

// Every rendering is of Kubernetes' types, its names fit together, and blockd takes the configuration that its pods have.
func TestChart(t *testing.T) {
	for name, values := range map[string]string{
		"plain": plain, "everything": everything,
		"no state":    plain + "persistence: {enabled: false}\nreplicas: 1\npreStopSeconds: 0\nexistingLists: theirs\nnetworkPolicy: {enabled: false}\n",
		"policy only": plain + "doors: {milter: {enabled: false}}\n",
		"smtp only":   "doors: {smtp: {enabled: true}, milter: {enabled: false}, policy: {enabled: false}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			o := made(t, values)
			set := o.sets["mail-blockd"]
			if set == nil || len(set.Spec.Template.Spec.Containers) != 1 {
				t.Fatal("no StatefulSet mail-blockd with one container")
			}
			pod, box := set.Spec.Template.Spec, set.Spec.Template.Spec.Containers[0]
			ports, volumes, mounts := map[string]int32{}, map[string]bool{}, map[string]bool{}
			for _, p := range box.Ports {
				ports[p.Name] = p.ContainerPort
			}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
				if m := v.ConfigMap; m != nil && o.maps[m.Name] == nil && m.Name != "theirs" {
					t.Errorf("volume %s is of the ConfigMap %s, which is not there", v.Name, m.Name)
				}
			}
			for _, c := range set.Spec.VolumeClaimTemplates {
				volumes[c.Name] = true
			}
			for _, m := range box.VolumeMounts {
				if !volumes[m.Name] || mounts[m.MountPath] {
					t.Errorf("mount %s of %s: no such volume, or twice", m.MountPath, m.Name)
				}
				for other := range mounts { // nothing can be mounted within a ConfigMap
					if strings.HasPrefix(m.MountPath, other+"/") || strings.HasPrefix(other, m.MountPath+"/") {
						t.Errorf("mounts %s and %s are within each other", m.MountPath, other)
					}
				}
				mounts[m.MountPath] = true
				delete(volumes, m.Name)
			}
			if len(volumes) > 0 {
				t.Errorf("volumes that nothing mounts: %v", volumes)
			}
			for _, s := range o.services {
				for _, p := range s.Spec.Ports {
					if ports[p.TargetPort.StrVal] == 0 {
						t.Errorf("service %s: port %s leads nowhere", s.Name, p.Name)
					}
				}
				for k, v := range s.Spec.Selector {
					if set.Spec.Template.Labels[k] != v {
						t.Errorf("service %s selects %s=%s, which no pod has", s.Name, k, v)
					}
				}
			}
			if o.services[set.Spec.ServiceName] == nil {
				t.Errorf("serviceName %s is no service", set.Spec.ServiceName)
			}
			for _, n := range o.networks {
				for _, rule := range n.Spec.Ingress {
					for _, p := range rule.Ports {
						if ports[p.Port.StrVal] == 0 {
							t.Errorf("network policy: port %s leads nowhere", p.Port.StrVal)
						}
					}
				}
			}
			for what, probe := range map[string]*core.Probe{"startup": box.StartupProbe, "liveness": box.LivenessProbe, "readiness": box.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || ports[probe.HTTPGet.Port.StrVal] != 8026 {
					t.Errorf("%s: no probe of the health door", what)
				}
			}
			if len(o.budgets) != map[bool]int{true: 1, false: 0}[*set.Spec.Replicas > 1] {
				t.Errorf("%d budgets for %d pods", len(o.budgets), *set.Spec.Replicas)
			}
			if s := box.SecurityContext; !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot || *pod.EnableServiceLinks {
				t.Error("the pod may more than it needs")
			}

			c := configuration(t, o.maps["mail-blockd"].Data["config.toml"], box.Env)
			for door, listen := range map[string]string{"smtp": c.SMTP.Listen, "milter": c.Milter.Listen, "policy": c.Postfix.PolicyListen, "health": c.Health.Listen} {
				if want := map[bool]string{true: fmt.Sprintf(":%d", ports[door])}[ports[door] != 0]; listen != want {
					t.Errorf("%s listens on %q, and its port is %q", door, listen, want)
				}
			}
			if (ports["http"] != 0) != (c.HTTP.Listen == ":8025") || ports["http"] != 0 && !mounts[filepath.Dir(c.HTTP.TokenFile)] {
				t.Errorf("http: port %d, listen %q, token %q", ports["http"], c.HTTP.Listen, c.HTTP.TokenFile)
			}
			for _, l := range c.Lists {
				if l.Source == nil && !mounts[filepath.Dir(l.Path)] {
					t.Errorf("list %s: nothing is mounted at %s", l.Name, filepath.Dir(l.Path))
				}
				if l.Source != nil && !mounts[filepath.Dir(l.Source.DSNFile)] {
					t.Errorf("list %s: nothing is mounted at %s", l.Name, filepath.Dir(l.Source.DSNFile))
				}
			}
			if drain := time.Duration(c.SMTP.DrainTimeout); time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second < drain+10*time.Second {
				t.Errorf("%d s of grace for sessions that have %v", *pod.TerminationGracePeriodSeconds, drain)
			}
			if c.Index.Path == "" || !mounts[filepath.Dir(c.Index.Path)] {
				t.Errorf("nothing is mounted for %s", c.Index.Path)
			}
		})
	}
}

// configuration is what blockd makes of the file and the variables of a pod.
func configuration(t *testing.T, text string, env []core.EnvVar) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	for _, v := range env {
		t.Setenv(v.Name, v.Value)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatalf("blockd does not take the configuration of its pods: %v", err)
	}
	return c
}

func TestEverythingIsTakenUp(t *testing.T) {
	o := made(t, everything)
	set, monitor := o.sets["mail-blockd"], o.monitors["mail-blockd"]
	box := set.Spec.Template.Spec.Containers[0]
	if box.Image != "registry.here.example/blockd:1.2" || *set.Spec.Replicas != 3 || *set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName != "fast" {
		t.Errorf("image %s, %d pods", box.Image, *set.Spec.Replicas)
	}
	c := configuration(t, o.maps["mail-blockd"].Data["config.toml"], box.Env)
	if c.SMTP.Hostname != "mx.here.example" || c.SMTP.MaxRecipients != 200 || !c.SMTP.Chunking || c.Refusal.Contact != "mailto:postmaster@here.example" ||
		strings.Join(c.Milter.AllowFrom, " ") != "10.0.0.0/8 fd00::/8" {
		t.Errorf("%+v", c.SMTP)
	}
	if s := o.services["mail-blockd"]; s.Spec.Type != core.ServiceTypeLoadBalancer || s.Spec.ExternalTrafficPolicy != core.ServiceExternalTrafficPolicyLocal {
		t.Errorf("service: %+v", s.Spec)
	}
	if monitor == nil || monitor.Labels["release"] != "prometheus" || monitor.Spec.Endpoints[0].Port != "http" || monitor.Spec.Endpoints[0].Authorization.Credentials.Name != "mail-token" {
		t.Fatalf("ServiceMonitor: %+v", monitor)
	}
	for k, v := range monitor.Spec.Selector.MatchLabels {
		if o.services["mail-blockd-pods"].Labels[k] != v {
			t.Errorf("the monitor selects %s=%s, which the service of the pods does not have", k, v)
		}
	}
	if o.maps["mail-blockd-lists"].Data["bulk.txt"] != "bulk.example\n" {
		t.Errorf("lists: %v", o.maps["mail-blockd-lists"].Data)
	}
}

// A changed configuration restarts the pods one after another; a changed list does not.
func TestWhatRestartsPods(t *testing.T) {
	sum := func(values string) string {
		return made(t, values).sets["mail-blockd"].Spec.Template.Annotations["checksum/config"]
	}
	if sum(plain) == sum(plain+"config: \"[log]\\nlevel = \\\"warn\\\"\\n\"\n") {
		t.Error("a changed configuration restarts nothing")
	}
	if sum(plain) != sum(plain+"lists: {a: \"b.example\"}\n") {
		t.Error("a changed list restarts the pods")
	}
}

func TestValuesThatCannotWork(t *testing.T) {
	for values, want := range map[string]string{
		"": "allowFrom: want the networks",
		"allowFrom: [10.0.0.0/8]\ndoors: {milter: {enabled: false}, policy: {enabled: false}}": "doors: none is enabled",
		plain + "serviceMonitor: {enabled: true}":                                              "needs http.tokenSecret",
		plain + "env: {SMTP_HOSTNAME: a}":                                                      "want names that begin with BLOCKD_",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}
