package v1alpha1

// LabelSelector selects objects by their labels. Every condition must hold, and {} selects all objects. It is written
// as everywhere in Kubernetes; unlike there, labels that no object can have are refused.
type LabelSelector struct {
	// MatchLabels are labels that an object must have, with these values; at most 32.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && !format.qualifiedName().validate(k).hasValue())",message="write names of labels, such as pool or example.com/pool"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
	// MatchExpressions are conditions on labels; at most 32.
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is a condition on one label.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",message="In and NotIn need values, the others take none"
type LabelRequirement struct {
	// Key is the name of the label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="write the name of a label, such as pool or example.com/pool"
	Key string `json:"key"`
	// Operator is In (the label has one of the values), NotIn (it has none of them, or is absent), Exists or
	// DoesNotExist.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`
	// Values are the values of In and NotIn, at most 64. Exists and DoesNotExist take none.
	// +kubebuilder:validation:MaxItems=64
	Values []LabelValue `json:"values,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string
