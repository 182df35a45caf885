package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// The StorageClass in addons.yaml names it.
const provisioner = "chandlery.dev/folders"

// newVolumesCommand makes a volume for every claim: a folder on the node behind a `local` volume, which honors
// fsGroup as `hostPath` does not. A claim's volume and folder go when the claim goes.
func newVolumesCommand() *cobra.Command {
	var kubeconfig, folder string
	command := &cobra.Command{
		Use:  "volumes",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			return provision(command.Context(), client, folder)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&folder, "folder", "", "where the volumes' folders lie")
	return command
}

type volumes struct {
	client  kubernetes.Interface
	folder  string
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

// provision looks at all claims and volumes whenever one of them changes. What fails is tried again a second later.
func provision(ctx context.Context, client kubernetes.Interface, folder string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	claims, existing := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	changed := make(chan struct{}, 1)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{claims.Informer(), existing.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	v := volumes{client, folder, claims.Lister(), existing.Lister()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		if err := v.reconcile(ctx); err != nil {
			klog.ErrorS(err, "volumes")
			time.AfterFunc(time.Second, poke)
		}
	}
}

func (v volumes) reconcile(ctx context.Context) error {
	claims, err := v.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if claim.Status.Phase == core.ClaimPending &&
			claim.Annotations["volume.kubernetes.io/storage-provisioner"] == provisioner &&
			claim.Annotations["volume.kubernetes.io/selected-node"] != "" {
			if err := v.create(ctx, claim); err != nil {
				return err
			}
		}
	}
	existing, err := v.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, volume := range existing {
		if volume.Annotations["pv.kubernetes.io/provisioned-by"] == provisioner &&
			volume.Status.Phase == core.VolumeReleased && volume.DeletionTimestamp == nil &&
			volume.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete {
			if err := v.remove(ctx, volume); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v volumes) create(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	if _, err := v.volumes.Get(name); err == nil {
		return nil // made, and not bound yet
	}
	folder := filepath.Join(v.folder, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	volume := &core.PersistentVolume{
		// Without this annotation the volume controller looks for a way to delete the volume, and fails it.
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      claim.Spec.Resources.Requests,
			AccessModes:                   claim.Spec.AccessModes,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: folder}},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
				MatchExpressions: []core.NodeSelectorRequirement{{
					Key: core.LabelHostname, Operator: core.NodeSelectorOpIn,
					Values: []string{claim.Annotations["volume.kubernetes.io/selected-node"]},
				}},
			}}}},
		},
	}
	_, err := v.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (v volumes) remove(ctx context.Context, volume *core.PersistentVolume) error {
	if err := os.RemoveAll(volume.Spec.Local.Path); err != nil {
		return err
	}
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
